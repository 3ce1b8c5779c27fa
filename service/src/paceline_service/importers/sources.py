"""Which formats ``paceline analyze`` reads, and the one that its paths hold.

A further format is a ``Source`` in ``SOURCES``: how its files begin, and what answers for them.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from paceline.errors import InputError
from paceline_service.importers.answer import Answer
from paceline_service.importers.events import read_event_log
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder import begins_dump, read_dumps
from paceline_service.importers.kineto.job import read_traces
from paceline_service.importers.kineto.recognize import begins_trace
from paceline_service.importers.lines import open_binary
from paceline_service.importers.log import EventLog
from paceline_service.importers.offline import See, answer_log
from paceline_service.importers.progress import Progress
from paceline_service.importers.whatif_parquet import begins_what_if, read_what_if

HEAD_BYTES = 64 << 10
"""Of each file, unpacked, by which it is recognised; eight GPUs' properties take 6 KB of it."""
_NAMED_FILES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One format: ``read`` for one of timed records, ``judge`` for one that has none.

    Attributes:
        name: as a reader knows it, for messages.
        begins: whether a file with these first bytes (unpacked, ``HEAD_BYTES``) is one.
        read: the timed records of files of it; ``faults`` holds what is known of them already.
        judge: the report on files of a format whose records have no times.
    """

    name: str
    begins: Callable[[bytes], bool]
    read: Callable[[Sequence[Path], Faults], EventLog] | None = None
    judge: Callable[[Sequence[Path], Faults], Answer] | None = None

    def analyze(self, paths: Sequence[Path], faults: Faults, see: See | None = None) -> Answer:
        """Return the answer for files of this format; the caller closes its ``log``.

        Raises:
            InputError: none of them can be used, or they do not belong together.
        """
        if self.read is None:
            assert self.judge is not None
            return self.judge(paths, faults)
        log = self.read(paths, faults)
        try:
            log.format = self.name
            return answer_log(log, see)
        except BaseException:
            log.close()
            raise


def _judge_dumps(paths: Sequence[Path], faults: Faults) -> Answer:
    return Answer(report=read_dumps(paths, faults).to_dict(), faults=faults)


def _begins_event_log(head: bytes) -> bool:
    return b'"paceline.' in head.partition(b"\n")[0] and b'"schema"' in head


EVENTS = Source(name="event log", begins=_begins_event_log, read=read_event_log)
KINETO = Source(name="PyTorch profiler trace", begins=begins_trace, read=read_traces)
WHAT_IF = Source(name="what-if trace (Parquet)", begins=begins_what_if, read=read_what_if)
DUMPS = Source(name="Flight Recorder dump", begins=begins_dump, judge=_judge_dumps)
SOURCES: list[Source] = [EVENTS, KINETO, WHAT_IF, DUMPS]


def analyze_paths(paths: Sequence[Path], progress: Progress | None = None) -> Answer:
    """Return the answer for the files at ``paths``, its records let go (see ``answer_paths``)."""
    with answer_paths(paths, progress) as answer:
        return replace(answer, log=None)


@contextmanager
def answer_paths(
    paths: Sequence[Path], progress: Progress | None = None, see: See | None = None
) -> Iterator[Answer]:
    """Give the answer for the files at ``paths``, and its timed records as long as it is open.

    ``see`` is shown the steps where there are timed records. The other args and the errors are
    those of ``analyze_paths``.
    """
    answer = _answer_paths(paths, progress or Progress(), see)
    try:
        yield answer
    finally:
        if answer.log is not None:
            answer.log.close()


def _answer_paths(paths: Sequence[Path], progress: Progress, see: See | None) -> Answer:
    """Return the answer for the files at ``paths``; a directory gives those directly in it.

    Files that are of no known format are left out and told, as long as there are others.

    Args:
        paths: files and directories.
        progress: told how far the reading has come.
        see: shown the steps, where there are timed records.

    Raises:
        InputError: nothing there can be read, or what is there is of several formats.
    """
    found: dict[str, list[Path]] = {}
    others: list[Path] = []
    for path in _files(paths):
        source = _source_of(path)
        if source is None:
            others.append(path)
        else:
            found.setdefault(source.name, []).append(path)
    if len(found) > 1:
        listed = "; ".join(
            f"{len(files)} of the format {name} ({files[0].name})" for name, files in found.items()
        )
        raise InputError(f"the input is of several formats: {listed}; give those of one at a time")
    name = next(iter(found), EVENTS.name)
    if name == EVENTS.name:
        # It has rules of its own for what else lies in a directory of logs.
        return _events_or_known_formats(paths, progress, see)
    named = {path for path in paths if not path.is_dir()}
    faults = Faults(progress=progress)
    for path in others:
        if path in named and not path.exists():
            raise InputError(f"{path} does not exist")
        if path in named:
            raise InputError(f"{path} is {_unknown()}")
    _tell_left_out(others, faults)
    source = next(source for source in SOURCES if source.name == name)
    return source.analyze(found[name], faults, see)


def _events_or_known_formats(paths: Sequence[Path], progress: Progress, see: See | None) -> Answer:
    try:
        return EVENTS.analyze(paths, Faults(progress=progress), see)
    except InputError as error:
        if "no event log" not in str(error):
            raise
        raise InputError(f"{error}; known formats: {_names()}") from error


def _tell_left_out(others: Sequence[Path], faults: Faults) -> None:
    """Tell in one sentence a directory which of its files are something else."""
    for directory in dict.fromkeys(path.parent for path in others):
        names = [path.name for path in others if path.parent == directory]
        shown = ", ".join(names[:_NAMED_FILES])
        more = f" and {len(names) - _NAMED_FILES} more" if len(names) > _NAMED_FILES else ""
        message = f"left out, {_unknown()}: {shown}{more}"
        faults.add("skipped_file", directory, None, message, count=len(names))


def _files(paths: Sequence[Path]) -> list[Path]:
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        try:
            inside = sorted(p for p in path.iterdir() if not p.name.startswith("."))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from error
        files += [p for p in inside if p.is_file()]
    return list(dict.fromkeys(files))


def _source_of(path: Path) -> Source | None:
    head = _head(path)
    return next((source for source in SOURCES if head and source.begins(head)), None)


def _head(path: Path) -> bytes:
    """Return the first bytes, unpacked as far as they can be."""
    head = b""
    try:
        with open_binary(path) as file:
            while len(head) < HEAD_BYTES and (more := file.read1(HEAD_BYTES - len(head))):  # type: ignore[attr-defined]
                head += more
    except (EOFError, OSError, zlib.error, gzip.BadGzipFile, InputError):
        pass
    return head


def _unknown() -> str:
    return f"of no known format ({_names()})"


def _names() -> str:
    return ", ".join(source.name for source in SOURCES)
