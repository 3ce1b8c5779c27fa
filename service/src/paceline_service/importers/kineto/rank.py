"""One rank's timeline from its trace: steps, phases, what was busy, and its collectives."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Phase
from paceline_service.analysis.matching.intervals import covered_ns, length_ns, union
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import distinct
from paceline_service.importers.kineto.calls import Calls, collectives_of
from paceline_service.importers.kineto.trace import COMMUNICATION, COMPUTE, MEMORY, Trace

STOOD_STILL_BELOW = 0.5
"""A collective under which less than this share of compute ran is taken to have been waited for
from its start: short kernels trickle in between also while a stream stands still. Under the others
only the share without compute is."""
_ON_DEVICE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """How long each kind of work ran within the rank's own window; unions over streams, ns."""

    window_ns: int
    compute_ns: int
    communication_ns: int
    memory_ns: int
    busy_ns: int
    overlap_ns: int

    @property
    def exposed_ns(self) -> int:
        """Communication with no compute under it."""
        return self.communication_ns - self.overlap_ns

    @property
    def idle_ns(self) -> int:
        """Time in which nothing ran."""
        return self.window_ns - self.busy_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTimeline:
    """One rank in one window of profiling.

    Attributes:
        on_device: whether steps and phases are on the GPU's timeline.
        steps: (S,) their numbers, ascending; ``step_start_ns``, ``step_end_ns`` beside them.
        numbered: whether the trace gave the numbers.
        phases: (P, 5) code, step index, start, end, whether on the device.
        calls: its collectives, with the index of their step in ``call_step`` (-1 outside any) and
            when the rank began to stand still for them in ``call_join_ns``.
        busy: unions of its work.
    """

    trace: Trace
    on_device: bool
    steps: Int64Array
    step_start_ns: Int64Array
    step_end_ns: Int64Array
    numbered: bool
    phases: Int64Array
    calls: Calls
    call_step: Int64Array
    call_join_ns: Int64Array
    busy: Busy


def timeline_of(trace: Trace) -> RankTimeline:
    """Return what one trace says about its rank."""
    calls = collectives_of(trace)
    start, end, kind, correlation = trace.activities.arrays()
    on_device = len(start) > 0 and not calls.on_host
    if not on_device:
        start, end = trace.host.arrays()
        kind = np.full(len(start), COMPUTE, dtype=np.int64)
        start = np.concatenate([start, calls.start_ns])
        end = np.concatenate([end, calls.end_ns])
        kind = np.concatenate([kind, np.full(len(calls), COMMUNICATION, dtype=np.int64)])
    number, host_start, host_end = _host_steps(trace)
    issued = start if not on_device else _launched_ns(trace, start, correlation)
    if on_device:
        begin, finish = _device_steps(host_start, host_end, start, end, issued, number)
    else:
        begin, finish = host_start, host_end
    compute = kind == COMPUTE
    phases = _phases(trace, host_start, host_end, start[compute], end[compute], issued[compute],
                     on_device)  # fmt: skip
    computing = union(start[compute], end[compute])
    covered = covered_ns(calls.start_ns, calls.end_ns, computing)
    duration = calls.end_ns - calls.start_ns
    stood_still = covered < STOOD_STILL_BELOW * duration
    launched = np.where(calls.launch_ns > 0, calls.launch_ns, calls.start_ns)
    return RankTimeline(
        trace=trace,
        on_device=on_device,
        steps=number,
        step_start_ns=begin,
        step_end_ns=finish,
        numbered=len(trace.steps) > 0,
        phases=phases,
        calls=calls,
        call_step=_step_at(launched, host_start, host_end),
        call_join_ns=np.where(stood_still, calls.start_ns, calls.end_ns - duration + covered),
        busy=_busy(start, end, kind),
    )


def _busy(start: Int64Array, end: Int64Array, kind: Int64Array) -> Busy:
    computing = union(start[kind == COMPUTE], end[kind == COMPUTE])
    talking = union(start[kind == COMMUNICATION], end[kind == COMMUNICATION])
    memory = kind == MEMORY
    return Busy(
        window_ns=int(end.max() - start.min()) if len(start) else 0,
        compute_ns=int((computing[1] - computing[0]).sum()),
        communication_ns=int((talking[1] - talking[0]).sum()),
        memory_ns=length_ns(start[memory], end[memory]),
        busy_ns=length_ns(start, end),
        overlap_ns=int(covered_ns(*talking, computing).sum()),
    )


def _host_steps(trace: Trace) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return number, start and end of each step on the host; the whole trace where it has none."""
    if not len(trace.steps):
        first, last = _extent(trace)
        one = np.ones(1, dtype=np.int64)
        return 0 * one, first * one, last * one
    number, start, end = trace.steps.arrays()
    # The first annotation of a number is the step; a copy of it on the GPU is of another category.
    number, index = np.unique(number, return_index=True)
    start, end = start[index], end[index]
    order = np.argsort(start, kind="stable")
    number, start, end = number[order], start[order], end[order]
    ascending = np.append(True, np.diff(np.maximum.accumulate(number)) > 0)
    return number[ascending], start[ascending], end[ascending]


def _extent(trace: Trace) -> tuple[int, int]:
    columns = (trace.activities, trace.host, trace.calls)
    tables = [column.arrays()[:2] for column in columns if len(column)]
    if not tables:
        return 0, 0
    return min(int(t[0].min()) for t in tables), max(int(t[1].max()) for t in tables)


def _launched_ns(trace: Trace, start: Int64Array, correlation: Int64Array) -> Int64Array:
    """Return when each activity was launched; its start where that is not in the trace."""
    known, launched = trace.launch_of(correlation)
    return np.where(known, np.minimum(launched[0], start), start)


def _step_at(time_ns: Int64Array, start: Int64Array, end: Int64Array) -> Int64Array:
    index = np.searchsorted(start, time_ns, side="right") - 1
    inside = (index >= 0) & (time_ns <= end[np.maximum(index, 0)])
    return np.where(inside, index, -1)


def _device_steps(
    host_start: Int64Array,
    host_end: Int64Array,
    start: Int64Array,
    end: Int64Array,
    issued: Int64Array,
    number: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Return begin and end of each step on the device.

    A step begins when the device is through with what was launched before it, not before the host
    began it, and at the latest with its own first activity. It ends where the next one begins.
    """
    steps = len(host_start)
    index = np.searchsorted(host_start, issued, side="right") - 1
    first = np.full(steps + 1, np.iinfo(np.int64).max)
    done = np.zeros(steps + 1, dtype=np.int64)
    # Slot 0 holds what was launched before the first step, slot s + 1 that of step s.
    np.minimum.at(first, index + 1, start)
    np.maximum.at(done, index + 1, end)
    done = np.maximum.accumulate(done)
    begin = np.minimum(first[1:], np.maximum(host_start, done[:-1]))
    finish = np.maximum(host_end, done[1:])
    adjacent = np.diff(number) == 1
    finish[:-1][adjacent] = begin[1:][adjacent]
    return begin, np.maximum(finish, begin)


def _phases(
    trace: Trace,
    host_start: Int64Array,
    host_end: Int64Array,
    start: Int64Array,
    end: Int64Array,
    issued: Int64Array,
    on_device: bool,
) -> Int64Array:
    """Return (P, 5) phases: those of the host, and on the device what was launched in them."""
    code, begin, finish = (
        trace.phases.arrays() if len(trace.phases) else (np.zeros(0, np.int64),) * 3
    )
    step = _step_at(begin, host_start, host_end)
    rows = [(int(c), int(s), int(b), int(f)) for c, s, b, f in zip(code, step, begin, finish,
            strict=True) if s >= 0]  # fmt: skip
    annotated = {s for c, s, _, _ in rows if c == Phase.BACKWARD}
    rows += [
        row for row in _engine_backwards(trace, host_start, host_end) if row[1] not in annotated
    ]
    rows.sort(key=lambda row: (row[2], -row[3]))
    found: list[tuple[int, int, int, int, int]] = []
    order = np.argsort(issued, kind="stable")
    in_order = issued[order]
    for c, s, b, f in rows:
        if not on_device or c not in _ON_DEVICE:
            found.append((c, s, b, f, 0))
            continue
        low, high = np.searchsorted(in_order, (b, f))
        launched = order[low:high]
        if len(launched):
            found.append((c, s, int(start[launched].min()), int(end[launched].max()), 1))
    return np.array(found, dtype=np.int64).reshape(-1, 5)


def _engine_backwards(
    trace: Trace, host_start: Int64Array, host_end: Int64Array
) -> list[tuple[int, int, int, int]]:
    """Return the stretch of each step in which the autograd engine ran operators."""
    if not len(trace.backward):
        return []
    begin, finish = trace.backward.arrays()
    step = _step_at(begin, host_start, host_end)
    rows = []
    for s in distinct(step[step >= 0]):
        mine: BoolArray = step == s
        rows.append((int(Phase.BACKWARD), int(s), int(begin[mine].min()), int(finish[mine].max())))
    return rows
