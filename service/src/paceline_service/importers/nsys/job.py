"""Exports of one job as an ``EventLog``, by the code that also makes it of profiler traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.counted import counted
from paceline.errors import InputError
from paceline_service.analysis.report import Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto.job import log_of
from paceline_service.importers.kineto.rank import RankTimeline, timeline_of
from paceline_service.importers.kineto.windows import windows_of
from paceline_service.importers.limits import MAX_RANKS
from paceline_service.importers.log import EventLog
from paceline_service.importers.nsys.communicators import communicators
from paceline_service.importers.nsys.database import Database
from paceline_service.importers.nsys.process import read_process
from paceline_service.importers.nsys.ranges import Ranges, read_ranges
from paceline_service.importers.nsys.ranks import Process, Ranks, count_steps, find_ranks
from paceline_service.importers.nsys.session import Session, read_session
from paceline_service.importers.nsys.strings import Strings

_HOW_TO_TELL = (
    "record with --trace=cuda,nvtx from before init_process_group on, so that NCCL tells it, or "
    "one export a rank, named like rank3.sqlite"
)


def read_exports(paths: Sequence[Path], faults: Faults) -> EventLog:
    """Return what the SQLite exports of one job say.

    Raises:
        InputError: none is usable, or nobody can say which ranks they show.
    """
    sessions, ranges = _sessions(paths, faults)
    ranks = find_ranks(sessions, ranges)
    for path in ranks.unknown:
        message = f"left out: nothing tells which ranks it shows; {_HOW_TO_TELL}"
        faults.add("unusable_file", path, None, message)
    if not ranks.of:
        raise InputError(
            f"{sessions[0].path}: nothing tells which of its "
            f"{len(sessions[0].processes)} processes is which rank; {_HOW_TO_TELL}"
        )
    most = max([ranks.world_size, *(rank + 1 for rank in ranks.of.values())])
    if most > MAX_RANKS:
        raise InputError(
            f"{sessions[0].path}: a job of {most:,} ranks; at most {MAX_RANKS:,} are read"
        )
    count_steps({process: own for process, own in ranges.items() if process in ranks.of})
    timelines = _timelines(sessions, ranges, ranks, faults)
    windows, world_size = windows_of(timelines, faults)
    log = log_of(windows, world_size, faults)
    _tell(log, _notes(sessions, ranks, world_size))
    return log


def _sessions(paths: Sequence[Path], faults: Faults) -> tuple[list[Session], dict[Process, Ranges]]:
    sessions: list[Session] = []
    ranges: dict[Process, Ranges] = {}
    for path in paths:
        faults.reading(path)
        try:
            with Database(_plain(path)) as database:
                strings = Strings(database)
                session = read_session(database, strings)
                if not session.processes:
                    raise InputError(
                        f"{path}: no CUDA kernels in it; record with --trace=cuda,nvtx"
                    )
                found = read_ranges(database, strings)
        except InputError as error:
            faults.add("unusable_file", path, None, str(error).removeprefix(f"{path}: "))
            continue
        for process, device in session.processes:
            # Kernels that name no process are all of the one process that there is.
            own = found.get(process) or (_merged(found) if process == 0 else Ranges())
            ranges[len(sessions), (process, device)] = own if device < 0 else own.of_device(device)
        sessions.append(session)
    if not sessions:
        raise InputError(next(iter(faults.notes()), "there is no export of Nsight Systems"))
    return sessions, ranges


def _timelines(
    sessions: Sequence[Session],
    ranges: dict[Process, Ranges],
    ranks: Ranks,
    faults: Faults,
) -> list[RankTimeline]:
    found, count = communicators(ranks, ranges)
    timelines = []
    for i, session in enumerate(sessions):
        try:
            with Database(session.path) as database:
                strings = Strings(database)
                for process in session.processes:
                    if (i, process) not in ranks.of:
                        continue
                    trace, odd = read_process(
                        database, strings, session, process, ranges.pop((i, process)), found.get
                    )
                    if odd:
                        message = f"left out: {counted(odd, 'row')} without a usable time"
                        faults.add("invalid", session.path, None, message, count=odd)
                    if not trace.events:
                        continue
                    trace.rank, trace.world_size = ranks.of[i, process], ranks.world_size
                    trace.group_count = count
                    trace.clock = str(session.path)
                    timelines.append(timeline_of(trace))
                    trace.forget()
        except InputError as error:
            faults.add("truncated_file", session.path, None,
                       str(error).removeprefix(f"{session.path}: "))  # fmt: skip
        faults.advanced(session.path.stat().st_size)
    if not timelines:
        raise InputError(next(iter(faults.notes()), f"{sessions[0].path}: nothing usable in it"))
    return timelines


def _notes(sessions: Sequence[Session], ranks: Ranks, world_size: int) -> list[str]:
    notes = [f"which process is which rank is known from {ranks.manner}"]
    graphs = sum(session.whole_graphs for session in sessions)
    if graphs:
        notes.append(
            f"{graphs:,} CUDA graphs are recorded as a whole, so collectives in them are not "
            "seen: record with --cuda-graph-trace=node"
        )
    return notes


def _tell(log: EventLog, notes: Sequence[str]) -> None:
    finish = log.finish

    def told(report: Report) -> Report:
        report = finish(report) if finish is not None else report
        return replace(report, notes=[*report.notes, *notes])

    log.finish = told


def _plain(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror})") from error
    if packed:
        raise InputError(f"{path}: a packed SQLite file cannot be read in place; gunzip it")
    return path


def _merged(found: dict[int, Ranges]) -> Ranges:
    """Return the ranges of the process that has most of them."""
    return max(found.values(), key=lambda own: len(own.payloads) + len(own.steps),
               default=Ranges())  # fmt: skip
