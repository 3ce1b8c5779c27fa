"""Traces of a job as an ``EventLog``: the same code judges and draws it that does so for others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.event_log import LogGroup
from paceline_service.analysis.blame.arrivals import LastArrivals, last_arrivals, nobody
from paceline_service.analysis.blame.noise import LEAST_INSTANCES, release_noise_ns
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto.groups import Unpaired, pair
from paceline_service.importers.kineto.order import Paired
from paceline_service.importers.kineto.reading import Arrival
from paceline_service.importers.kineto.rows import Times, collective_rows, in_order, own_rows
from paceline_service.importers.kineto.steps import step_shifts, steps_of
from paceline_service.importers.kineto.summary import notes_of, trace_facts, with_causes
from paceline_service.importers.kineto.windows import Window, read_windows
from paceline_service.importers.log import EventLog


def read_traces(
    paths: Sequence[Path], faults: Faults, arrivals: Iterator[Arrival] | None = None
) -> EventLog:
    """Return what the profiler traces of one job say; arguments are those of ``read_windows``.

    Raises:
        InputError: none is usable, or they do not belong together.
    """
    windows, world_size = read_windows(paths, faults, arrivals)
    return log_of(windows, world_size, faults)


def log_of(windows: Sequence[Window], world_size: int, faults: Faults) -> EventLog:
    """Return the log of windows that were read by whatever importer."""
    log = EventLog(world_size=world_size, faults=faults, options=_options(windows))
    log.world_size_told = any(t.trace.world_size for window in windows for t in window.values())
    try:
        traces = _Traces(log, windows)
        for window in windows:
            traces.add(window)
    except BaseException:
        log.close()
        raise
    log.finish, log.facts = traces.finish, traces.facts
    return log


def _options(windows: Sequence[Window]) -> Options:
    """Profilers begin in the middle of a run: the number of their first step tells how far in.

    At most half of what was recorded is taken to be settling: it was chosen to be looked at.
    """
    steps = [t.steps for window in windows for t in window.values() if t.numbered]
    begun = min((int(own[0]) for own in steps), default=0)
    recorded = len(set().union(*(own.tolist() for own in steps)))
    options = Options()
    settling = min(max(0, options.settling_steps - begun), recorded // 2)
    return replace(options, settling_steps=settling)


@dataclass(slots=True)
class _Traces:
    """Puts windows of profiling into a log, and knows what traces tell beyond records."""

    log: EventLog
    windows: Sequence[Window]
    arrivals: LastArrivals = field(init=False)
    assumed: bool = False
    notes: list[str] = field(default_factory=list)
    _groups: dict[tuple[str, tuple[int, ...]], int] = field(default_factory=dict)
    _seq: dict[tuple[int, int, int], int] = field(default_factory=dict)
    _next_step: int = 0

    def __post_init__(self) -> None:
        self.arrivals = nobody(self.log.world_size)

    def add(self, window: Window) -> None:
        """Take one window."""
        log = self.log
        pairs, unpaired = pair(window, log.world_size)
        self._tell(pairs, unpaired, window)
        shift = step_shifts(window, pairs)
        lowest = min((int(t.steps[0]) + shift[r] for r, t in window.items()), default=0)
        # Windows whose numbers begin again follow those before them.
        again = max(0, self._next_step - lowest) + max(0, -lowest)
        numbers = {rank: t.steps + shift[rank] + again for rank, t in window.items()}
        tables: dict[int, list[Int64Array]] = {rank: [] for rank in window}
        for paired in pairs:
            self._take(paired, window, numbers, tables)
        for rank, timeline in sorted(window.items()):
            rows = in_order([*tables.pop(rank), *own_rows(timeline, numbers[rank])])
            log.spool.extend(rank, rows)
            log.ranks_with_steps.add(rank)
            if timeline.trace.host_name:
                log.nodes[rank] = timeline.trace.host_name
            if timeline.trace.clock:
                log.clock_domains[rank] = timeline.trace.clock
            self._place(rank, timeline.trace.wall_offset_ns, rows)
            self._next_step = max(self._next_step, int(numbers[rank].max(initial=-1)) + 1)

    def finish(self, report: Report) -> Report:
        """Add the causes that launches tell, and sentences about the traces."""
        told = self.arrivals if report.verdict != "healthy" else nobody(self.log.world_size)
        report = with_causes(report, self.arrivals, self.log.nodes)
        return replace(
            report,
            notes=[*report.notes, *notes_of(self.windows, told, self.assumed), *self.notes],
        )

    def facts(self) -> dict[str, Any]:
        """Return what goes into ``data`` of the report."""
        return {"trace": trace_facts(self.windows, self.arrivals)}

    def _place(self, rank: int, wall_offset_ns: int | None, rows: Int64Array) -> None:
        """Note when a rank's records begin and end, and what its clock shows."""
        first, last = Times.extent_of(rows)
        before = self.log.extents.get(rank, (first, last))
        self.log.extents[rank] = (min(first, before[0]), max(last, before[1]))
        if wall_offset_ns is not None:
            self.log.anchors.setdefault(rank, (first, first + wall_offset_ns))

    def _take(
        self,
        paired: Paired,
        window: Window,
        numbers: dict[int, Int64Array],
        tables: dict[int, list[Int64Array]],
    ) -> None:
        key, members = paired.key, paired.members.tolist()
        group = self._groups.setdefault((key.name, key.ranks), len(self.log.groups))
        if group == len(self.log.groups):
            self.log.groups.append(LogGroup(name=key.name, ranks=key.ranks))
        counter = (group, key.source, key.destination)
        first = self._seq.get(counter, 0)
        self._seq[counter] = first + len(paired.op)
        self.assumed = self.assumed or paired.assumed
        columns = [window[rank] for rank in members]
        times = Times.of(paired, columns)
        self._learn(paired, times, group)
        step = steps_of(paired, columns, numbers)
        for i, rank in enumerate(members):
            tables[rank].append(collective_rows(paired, columns[i], i, times, group, first, step))

    def _learn(self, paired: Paired, times: Times, group: int) -> None:
        """Measure from the collectives of a group who arrived last, and their release noise."""
        barrier = paired.barrier_like
        if barrier.any() and len(paired.members) == len(paired.key.ranks):
            queue = np.where(times.launch > 0, times.start - times.launch, -1)
            self.arrivals += last_arrivals(
                paired.members, (times.end - times.start)[barrier], queue[barrier],
                self.log.world_size,
            )  # fmt: skip
        if barrier.sum() >= LEAST_INSTANCES:
            ends = times.end[barrier] - times.end[barrier][:, :1]
            self.log.noise_ns[group] = release_noise_ns(ends.astype(np.float64))

    def _tell(self, pairs: list[Paired], unpaired: list[Unpaired], window: Window) -> None:
        faults = self.log.faults
        for problem in unpaired:
            group = f"group {problem.name!r}: " if problem.name else ""
            message = f"{group}{problem.reason}; not paired: {counted(problem.count, 'collective')}"
            faults.add("unpaired", window[problem.rank].trace.path, None, message,
                       rank=problem.rank, count=problem.count)  # fmt: skip
        for paired in pairs:
            for rank, count in paired.left_out.items():
                message = (
                    f"group {paired.key.name!r}: without a counterpart on every other member: "
                    f"{counted(count, 'collective')} of rank {rank}"
                )
                faults.add(
                    "unpaired", window[rank].trace.path, None, message, rank=rank, count=count
                )
            if paired.note and paired.note not in self.notes:
                self.notes.append(f"group {paired.key.name!r}: {paired.note}")
