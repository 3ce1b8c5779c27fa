"""The files of an input by their format: told by how they begin, never by their names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import field, replace
from pathlib import Path

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.heads import HEAD_BYTES, Head, read_head
from paceline_service.importers.source import Source
from paceline_service.importers.walk import Found

_LOG_SUFFIXES = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
"""What claims to be a log by its name is reported as broken when it is not one."""
_NAMED_FILES = 8
_PACKED = "packed by gzip, which this format cannot be read from; unpack it first (gunzip)"
_DIGITS = r"\d+"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Other:
    """A file that no source reads; ``known`` where one would, if its encoding were another."""

    file: Found
    head: Head
    known: bool


@dataclass(slots=True)
class Sorted:
    """Files by the name of the source that reads them."""

    of_source: dict[str, list[Path]] = field(default_factory=dict)
    packed_bytes: int = 0
    """Of all of them together."""


def sorted_by_format(
    files: Sequence[Found],
    paths: Sequence[Path],
    sources: Sequence[Source],
    events: Source,
    faults: Faults,
) -> Sorted:
    """Return the files by format; what is of none is left out and told.

    Args:
        files: what was found.
        paths: what the user gave, for messages.
        sources: the formats; of several that could be meant the first is.
        events: the one of event logs, which says best what is wrong with a broken one.
        faults: told of files that are left out.

    Raises:
        InputError: nothing is left, or a file that the user named is of no format.
    """
    found = Sorted()
    others: list[_Other] = []
    for file in files:
        head = read_head(file.path)
        source = next((s for s in sources if head.data and s.begins(head.data)), None)
        if source is None and len(head.data) == HEAD_BYTES and not head.problem:
            source = next((s for s in sources if s.holds and s.holds(file.path)), None)
        if source is not None and source.plain and head.packed:
            head = replace(head, problem=_PACKED)
        if source is None or head.problem:
            others.append(_Other(file=file, head=head, known=source is not None))
        else:
            found.of_source.setdefault(source.name, []).append(file.path)
            found.packed_bytes += file.packed_bytes
    if not found.of_source or events.name in found.of_source:
        _with_broken_logs(found, others, events)
    for other in others:
        if other.file.named:
            problem = other.head.problem or f"of no known format ({_names(sources)})"
            verb = "" if problem.startswith("cannot") else "is "
            raise InputError(f"{other.file.path} {verb}{problem}")
    if not found.of_source:
        raise InputError(_nothing(files, others, paths, sources))
    _tell_left_out(others, found, faults)
    for of_format in found.of_source.values():
        _tell_folders_alike(of_format, faults)
    return found


def _with_broken_logs(found: Sorted, others: list[_Other], events: Source) -> None:
    """Give the reader of event logs what is one by its name: it tells line and reason."""
    broken = {
        other.file.path
        for other in others
        if other.file.path.name.endswith(_LOG_SUFFIXES) and not other.head.problem
    }
    if broken:
        logs = found.of_source.get(events.name, [])
        found.of_source[events.name] = sorted([*logs, *broken])
        others[:] = [other for other in others if other.file.path not in broken]


def _nothing(
    files: Sequence[Found],
    others: Sequence[_Other],
    paths: Sequence[Path],
    sources: Sequence[Source],
) -> str:
    where = ", ".join(str(path) for path in paths[:4]) + (", ..." if len(paths) > 4 else "")
    first = next((other for other in others if other.head.problem), None)
    why = f" ({first.file.path}: {first.head.problem})" if first is not None else ""
    if others and not why:
        why = f" ({', '.join(other.file.path.name for other in others[:_NAMED_FILES])})"
    return (
        f"{where} holds no file of a known format among {counted(len(files), 'file')}{why}; known "
        f"formats: {_names(sources)}"
    )


def _tell_left_out(others: Sequence[_Other], found: Sorted, faults: Faults) -> None:
    """Tell of what is lost, and in one sentence a folder and reason what is something else."""
    kinds = {_kind(path) for paths in found.of_source.values() for path in paths}
    left: dict[tuple[Path, str], list[str]] = {}
    like = frozenset[str]().union(*kinds)
    for other in others:
        path, head = other.file.path, other.head
        if other.known:
            reason = "unusable_file" if head.packed else "encoding"
            faults.add(reason, path, None, f"left out: {head.problem}")
        elif not head.readable and not head.data and _kind(path) & like:
            faults.add("unusable_file", path, None, f"left out: {head.problem}")
        else:
            problem = "of no known format" if head.data or not head.problem else head.problem
            left.setdefault((path.parent, problem), []).append(path.name)
    for (folder, problem), names in left.items():
        shown = ", ".join(names[:_NAMED_FILES])
        more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
        message = f"left out, {problem}: {shown}{more}"
        faults.add("skipped_file", folder, None, message, count=len(names))


def _tell_folders_alike(paths: Sequence[Path], faults: Faults) -> None:
    """Tell of folders with files of the same names: they may be of two runs."""
    folders: dict[str, list[Path]] = {}
    for path in paths:
        folders.setdefault(path.name, []).append(path.parent)
    alike = Counter(tuple(own) for own in folders.values() if len(own) > 1)
    for own, count in alike.most_common(1):
        if count > 1:
            more = f" and {len(own) - 2} more" if len(own) > 2 else ""
            message = (
                f"has {count} files of the same names as {own[1]}{more}; all were taken to be of "
                "one run: give one folder if they are not"
            )
            faults.add("folders_alike", own[0], None, message, count=len(own))


def _kind(path: Path) -> frozenset[str]:
    """Return by what a name is like others: its suffixes, and itself without numbers."""
    suffixes = "".join(path.suffixes[-2:])
    return frozenset({f"*{suffixes}", re.sub(_DIGITS, "#", path.name)} - {"*"})


def _names(sources: Sequence[Source]) -> str:
    return ", ".join(source.name for source in sources)
