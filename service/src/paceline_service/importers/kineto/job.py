"""Traces of a job through the analysis: the same code that judges live jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from paceline.vocabulary import Flag, Op, RecordKind
from paceline_service.analysis.blame.arrivals import LastArrivals, last_arrivals, nobody
from paceline_service.analysis.blame.noise import LEAST_INSTANCES, release_noise_ns
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, Int64Array, Records
from paceline_service.importers.answer import Answer
from paceline_service.importers.faults import HARMLESS, Faults
from paceline_service.importers.kineto.groups import Unpaired, pair
from paceline_service.importers.kineto.order import Paired
from paceline_service.importers.kineto.rank import RankTimeline
from paceline_service.importers.kineto.summary import notes_of, trace_facts, with_cause
from paceline_service.importers.kineto.windows import Window, read_windows


def analyze_traces(paths: Sequence[Path], faults: Faults) -> Answer:
    """Return the answer for the profiler traces of one job.

    Raises:
        InputError: none is usable, or they do not belong together.
    """
    windows, world_size = read_windows(paths, faults)
    job = _Job(world_size, _options(windows))
    for window in windows:
        job.add(window, faults)
    job.analysis.finish()
    answer = job.analysis.report()
    dropped = dict(answer.dropped)
    for reason, count in faults.counts.items():
        if reason not in HARMLESS:
            dropped[reason] = dropped.get(reason, 0) + count
    told = job.arrivals if answer.verdict != "healthy" else nobody(world_size)
    notes = [*answer.notes, *notes_of(windows, told, job.assumed), *job.notes]
    answer = replace(
        answer,
        findings=[with_cause(finding, job.arrivals) for finding in answer.findings],
        complete=answer.complete and not faults.lossy,
        dropped=dropped,
        notes=[*notes, *faults.notes()],
    )
    result = answer.to_dict()
    result["data"]["trace"] = trace_facts(windows, job.arrivals)
    return Answer(report=result, faults=faults)


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


class _Job:
    """Feeds windows of profiling to one analysis."""

    def __init__(self, world_size: int, options: Options) -> None:
        self.analysis = JobAnalysis(world_size, options)
        self.arrivals: LastArrivals = nobody(world_size)
        self.assumed = False
        self.notes: list[str] = []
        self._seq: dict[tuple[int, int, int], int] = {}
        self._next_step = 0

    def add(self, window: Window, faults: Faults) -> None:
        """Take one window."""
        pairs, unpaired = pair(window, self.analysis.world_size)
        self._tell(pairs, unpaired, window, faults)
        shift = _step_shifts(window, pairs)
        lowest = min((int(t.steps[0]) + shift[r] for r, t in window.items()), default=0)
        # Windows whose numbers begin again follow those before them.
        again = max(0, self._next_step - lowest) + max(0, -lowest)
        numbers = {rank: t.steps + shift[rank] + again for rank, t in window.items()}
        rows: dict[int, list[tuple[int, ...]]] = {rank: [] for rank in window}
        for paired in pairs:
            self._take(paired, window, numbers, rows)
        for rank, timeline in sorted(window.items()):
            self.analysis.declare_rank(rank, node=timeline.trace.host_name)
            table = [*rows[rank], *_own_rows(timeline, numbers[rank])]
            self.analysis.add(_records(rank, table))
            self._next_step = max(self._next_step, int(numbers[rank].max(initial=-1)) + 1)

    def _take(
        self,
        paired: Paired,
        window: Window,
        numbers: dict[int, Int64Array],
        rows: dict[int, list[tuple[int, ...]]],
    ) -> None:
        key, members = paired.key, paired.members.tolist()
        group = self.analysis.declare_group(Group(name=key.name, ranks=key.ranks))
        counter = (group, key.source, key.destination)
        first = self._seq.get(counter, 0)
        self._seq[counter] = first + len(paired.op)
        self.assumed = self.assumed or paired.assumed
        columns = [window[rank] for rank in members]
        start, end, launch = (
            np.stack([getattr(t.calls, name)[paired.rows[:, i]] for i, t in enumerate(columns)], 1)
            for name in ("start_ns", "end_ns", "launch_ns")
        )
        barrier = paired.barrier_like
        if barrier.any() and len(members) == len(key.ranks):
            queue = np.where(launch > 0, start - launch, -1)
            self.arrivals += last_arrivals(
                paired.members, (end - start)[barrier], queue[barrier], self.analysis.world_size
            )
        if barrier.sum() >= LEAST_INSTANCES:
            ends = end[barrier] - end[barrier][:, :1]
            self.analysis.assume_noise(group, release_noise_ns(ends.astype(np.float64)))
        step = _steps_of(paired, columns, numbers)
        for i, (rank, timeline) in enumerate(zip(members, columns, strict=True)):
            calls, index = timeline.calls, paired.rows[:, i]
            p2p = key.source >= 0
            peer = (key.destination if rank == key.source else key.source) if p2p else -1
            op = calls.op[index] if p2p else paired.op
            flags = 0 if calls.on_host else int(Flag.GPU_TIME)
            columns_of = zip(
                op.tolist(), step.tolist(), calls.payload_bytes[index].tolist(),
                start[:, i].tolist(), end[:, i].tolist(), timeline.call_join_ns[index].tolist(),
                launch[:, i].tolist(), strict=True,
            )  # fmt: skip
            rows[rank] += [
                (RecordKind.COLLECTIVE, o, group, first + n, s, peer, b, t0, t1, join, issue, flags)
                for n, (o, s, b, t0, t1, join, issue) in enumerate(columns_of)
                if s >= 0
            ]

    def _tell(
        self, pairs: list[Paired], unpaired: list[Unpaired], window: Window, faults: Faults
    ) -> None:
        for problem in unpaired:
            group = f"group {problem.name!r}: " if problem.name else ""
            message = f"{group}{problem.reason}; {problem.count} collectives are not paired"
            faults.add("unpaired", window[problem.rank].trace.path, None, message,
                       rank=problem.rank, count=problem.count)  # fmt: skip
        for paired in pairs:
            for rank, count in paired.left_out.items():
                message = (
                    f"group {paired.key.name!r}: {count} collectives of rank {rank} have no "
                    "counterpart on every other member"
                )
                faults.add(
                    "unpaired", window[rank].trace.path, None, message, rank=rank, count=count
                )
            if paired.note and paired.note not in self.notes:
                self.notes.append(f"group {paired.key.name!r}: {paired.note}")


def _step_shifts(window: Window, pairs: Sequence[Paired]) -> dict[int, int]:
    """Return by how much each rank's step numbers differ from the others', as collectives tell."""
    shift = dict.fromkeys(window, 0)
    largest = max(pairs, key=lambda p: (len(p.members), len(p.op)), default=None)
    if largest is None:
        return shift
    members = largest.members.tolist()
    own = [_numbers(window[r], largest.rows[:, i]) for i, r in enumerate(members)]
    for rank, mine in zip(members, own, strict=True):
        both = (mine >= 0) & (own[0] >= 0)
        if both.any():
            values, counts = np.unique((own[0] - mine)[both], return_counts=True)
            shift[rank] = int(values[np.argmax(counts)])
    return shift


def _numbers(timeline: RankTimeline, rows: Int64Array) -> Int64Array:
    step = timeline.call_step[rows]
    return np.where(step >= 0, timeline.steps[np.maximum(step, 0)], -1)


def _steps_of(
    paired: Paired, columns: Sequence[RankTimeline], numbers: dict[int, Int64Array]
) -> Int64Array:
    """Return (C,) the step of each collective: what its first member with one says."""
    step = np.full(len(paired.op), -1, dtype=np.int64)
    for i, (rank, timeline) in enumerate(zip(paired.members.tolist(), columns, strict=True)):
        index = timeline.call_step[paired.rows[:, i]]
        mine = np.where(index >= 0, numbers[rank][np.maximum(index, 0)], -1)
        step = np.where(step >= 0, step, mine)
    return step


def _own_rows(timeline: RankTimeline, numbers: Int64Array) -> list[tuple[int, ...]]:
    rows: list[tuple[int, ...]] = []
    for code, step, start, end, on_device in timeline.phases.tolist():
        flags = int(Flag.GPU_TIME) if on_device else 0
        rows.append((RecordKind.PHASE, code, 0, 0, int(numbers[step]), -1, 0, start, end, 0, 0,
                     flags))  # fmt: skip
    flags = int(Flag.GPU_TIME) if timeline.on_device else 0
    for number, start, end in zip(
        numbers.tolist(), timeline.step_start_ns.tolist(), timeline.step_end_ns.tolist(),
        strict=True,
    ):  # fmt: skip
        rows.append((RecordKind.STEP, Op.UNKNOWN, 0, 0, number, -1, 0, start, end, 0, 0, flags))
    return rows


def _records(rank: int, rows: list[tuple[int, ...]]) -> Records:
    table = np.array(rows, dtype=np.int64).reshape(-1, 12)
    names = ("kind", "code", "group", "seq", "step", "peer", "payload_bytes", "start_ns", "end_ns",
             "join_ns", "issue_ns", "flags")  # fmt: skip
    return Records(rank=rank, **{name: table[:, i].copy() for i, name in enumerate(names)})
