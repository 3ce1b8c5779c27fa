"""The files of an input by their format: told by how they begin, never by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from paceline.errors import InputError
from paceline_service.importers.faults import Faults
from paceline_service.importers.heads import Head, read_head
from paceline_service.importers.source import Source
from paceline_service.importers.walk import Found

_LOG_SUFFIXES = (".ndjson", ".jsonl", ".ndjson.gz", ".jsonl.gz")
"""What claims to be a log by its name is reported as broken when it is not one."""
_NAMED_FILES = 8
_DIGITS = re.compile(r"\d+")


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
    others: list[tuple[Found, Head]] = []
    for file in files:
        head = read_head(file.path)
        source = next((s for s in sources if head.data and s.begins(head.data)), None)
        if source is None or head.problem:
            others.append((file, head))
            if source is not None and not file.named:
                faults.add("encoding", file.path, None, f"left out: {head.problem}")
        else:
            found.of_source.setdefault(source.name, []).append(file.path)
            found.packed_bytes += file.packed_bytes
    if not found.of_source or events.name in found.of_source:
        _with_broken_logs(found, others, events)
    for file, head in others:
        if file.named:
            problem = head.problem or f"of no known format ({_names(sources)})"
            verb = "" if problem.startswith("cannot") else "is "
            raise InputError(f"{file.path} {verb}{problem}")
    if not found.of_source:
        raise InputError(_nothing(files, others, paths, sources))
    _tell_left_out(others, found, faults)
    return found


def _with_broken_logs(found: Sorted, others: list[tuple[Found, Head]], events: Source) -> None:
    """Give the reader of event logs what is one by its name: it tells line and reason."""
    broken = [
        file for file, head in others if file.path.name.endswith(_LOG_SUFFIXES) and not head.problem
    ]
    if not broken:
        return
    found.of_source.setdefault(events.name, []).extend(file.path for file in broken)
    found.of_source[events.name].sort()
    others[:] = [(file, head) for file, head in others if file not in broken]


def _nothing(
    files: Sequence[Found],
    others: Sequence[tuple[Found, Head]],
    paths: Sequence[Path],
    sources: Sequence[Source],
) -> str:
    where = ", ".join(str(path) for path in paths[:4]) + (", ..." if len(paths) > 4 else "")
    first = next(((f, h) for f, h in others if h.problem), None)
    why = f" ({first[0].path}: {first[1].problem})" if first is not None else ""
    return (
        f"{where} holds no file of a known format among {len(files)} files{why}; known formats: "
        f"{_names(sources)}"
    )


def _tell_left_out(others: Sequence[tuple[Found, Head]], found: Sorted, faults: Faults) -> None:
    """Tell of what is lost, and in one sentence a folder and reason what is something else."""
    kinds = {_kind(path) for paths in found.of_source.values() for path in paths}
    left: dict[tuple[Path, str], list[str]] = {}
    for file, head in others:
        if not head.readable and head.data:
            continue  # told as of a wrong encoding
        if not head.readable and _kind(file.path) & set().union(*kinds):
            faults.add("unusable_file", file.path, None, f"left out: {head.problem}")
        else:
            problem = head.problem or "of no known format"
            left.setdefault((file.path.parent, problem), []).append(file.path.name)
    for (folder, problem), names in left.items():
        shown = ", ".join(names[:_NAMED_FILES])
        more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
        message = f"left out, {problem}: {shown}{more}"
        faults.add("skipped_file", folder, None, message, count=len(names))


def _kind(path: Path) -> frozenset[str]:
    """Return by what a name is like others: its suffixes, and itself without numbers."""
    suffixes = "".join(path.suffixes[-2:])
    return frozenset({f"*{suffixes}", _DIGITS.sub("#", path.name)} - {"*"})


def _names(sources: Sequence[Source]) -> str:
    return ", ".join(source.name for source in sources)
