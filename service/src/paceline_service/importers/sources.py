"""Which formats ``paceline analyze`` reads, and the answer for whatever its paths hold.

A further format is a ``Source`` in ``SOURCES``, those that can tell most first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from paceline_service.importers.answer import Answer
from paceline_service.importers.begins import begins_event_log, begins_what_if
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.recognize import begins_dump
from paceline_service.importers.interrupts import ctrl_c_waits
from paceline_service.importers.kineto.recognize import begins_trace
from paceline_service.importers.mixed import answer_of, of_one_job
from paceline_service.importers.nccl_inspector.recognize import begins_inspector
from paceline_service.importers.nsys.recognize import begins_nsys
from paceline_service.importers.parts import read_parts
from paceline_service.importers.progress import Progress
from paceline_service.importers.sorting import sorted_by_format
from paceline_service.importers.source import Source
from paceline_service.importers.timing_logs.recognize import (
    begins_primus,
    begins_timing_log,
    holds_timing_log,
)
from paceline_service.importers.walk import find_files

if TYPE_CHECKING:
    from paceline_service.importers.log import EventLog
    from paceline_service.importers.offline import See

__all__ = ["SOURCES", "Source", "analyze_paths", "answer_paths"]


# Each importer is imported when there are files for it: starting is most of a small answer.


def _read_events(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.events import read_event_log

    return read_event_log(paths, faults)


def _read_traces(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.kineto.reading import reading

    with reading(paths, faults) as arrivals:
        with ctrl_c_waits():
            # Others read meanwhile: all that is needed later too is imported now.
            import paceline_service.importers.offline  # noqa: F401
            from paceline_service.importers.kineto.job import read_traces

        return read_traces(paths, faults, arrivals)


def _read_what_if(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.whatif_parquet import read_what_if

    return read_what_if(paths, faults)


def _judge_dumps(paths: Sequence[Path], faults: Faults) -> Answer:
    from paceline_service.importers.flight_recorder.answer import judge_dumps

    return judge_dumps(paths, faults)


def _read_nsys(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.nsys.job import read_exports

    return read_exports(paths, faults)


def _read_inspector(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.nccl_inspector.read import read_inspector

    return read_inspector(paths, faults)


def _read_primus(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.timing_logs.primus import read_primus

    return read_primus(paths, faults)


def _read_timing_logs(paths: Sequence[Path], faults: Faults) -> EventLog:
    from paceline_service.importers.timing_logs.read import read_timing_logs

    return read_timing_logs(paths, faults)


EVENTS = Source(name="event log", begins=begins_event_log, read=_read_events)
KINETO = Source(name="PyTorch profiler trace", begins=begins_trace, read=_read_traces)
WHAT_IF = Source(
    name="what-if trace (Parquet)", begins=begins_what_if, plain=True, read=_read_what_if
)
INSPECTOR = Source(name="NCCL Inspector", begins=begins_inspector, read=_read_inspector)
NSYS = Source(
    name="Nsight Systems export (SQLite)", begins=begins_nsys, plain=True, read=_read_nsys
)
PRIMUS = Source(name="Primus pipeline times", begins=begins_primus, read=_read_primus)
TIMINGS = Source(
    name="training log with timings", begins=begins_timing_log, holds=holds_timing_log,
    read=_read_timing_logs,
)  # fmt: skip
DUMPS = Source(name="Flight Recorder dump", begins=begins_dump, judge=_judge_dumps)
SOURCES: list[Source] = [EVENTS, KINETO, WHAT_IF, NSYS, PRIMUS, INSPECTOR, TIMINGS, DUMPS]
"""In the order in which they can tell most: of several formats of one job the first leads."""


def analyze_paths(paths: Sequence[Path], progress: Progress | None = None) -> Answer:
    """Return the answer for the files at ``paths``, its records let go (see ``answer_paths``)."""
    with answer_paths(paths, progress) as answer:
        return replace(answer, log=None)


@contextmanager
def answer_paths(
    paths: Sequence[Path], progress: Progress | None = None, see: See | None = None
) -> Iterator[Answer]:
    """Give the answer for the files at ``paths``, and its timed records as long as it is open.

    Files of several formats give one answer, if they are of one job. Files that are of no known
    format are left out and told, as long as there are others.

    Args:
        paths: files, and directories that are searched at any depth.
        progress: told how far the reading has come.
        see: is shown the steps as they are judged, of the format that leads.

    Raises:
        InputError: nothing there can be read, or what is there is of several jobs.
    """
    progress = progress or Progress()
    faults = Faults(progress=progress)
    files = find_files(paths, faults)
    found = sorted_by_format(files, paths, SOURCES, EVENTS, faults)
    known = [path for mine in found.of_source.values() for path in mine]
    progress.expects(known, found.packed_bytes)
    alone = len(found.of_source) == 1
    parts = read_parts(found.of_source, SOURCES, faults, see if alone else None)
    try:
        kept = of_one_job(parts, faults)
        for part in parts:
            if part is not kept[0]:
                part.close()
        lead = kept[0].answer.log
        if see is not None and not alone and lead is not None:
            from paceline_service.importers.offline import analyze_log

            # Which format leads is known only now.
            analyze_log(lead, see)
        yield answer_of(kept, faults)
    finally:
        for part in parts:
            part.close()
