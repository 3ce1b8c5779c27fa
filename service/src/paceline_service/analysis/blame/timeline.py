"""Self time of every rank in one step, split by phase (docs/math/self-time.md).

A rank's step is self time, exposed wait and exposed communication and nothing else; the three
sum to the step's duration on every rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import EXCLUSIVE_PHASES, OVERLAYS, Phase, RecordKind
from paceline_service.analysis.blame.waits import Waits
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.order import time_order
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct, one_of

PHASES = len(EXCLUSIVE_PHASES)
_OVERLAYS = [int(phase) for phase in OVERLAYS]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """One step over all ranks; arrays by global rank, ns, -1 where a rank has no data.

    ``start_ns`` is on each rank's own clock; ``phase_self_ns`` is (R, 7) in the order of
    ``EXCLUSIVE_PHASES``; ``duration_ns`` is the median over the ranks; ``slowest_rank`` has
    the largest self time, -1 when nobody waited for it.
    """

    step: int
    start_ns: Int64Array
    duration_ns: int
    self_ns: Int64Array
    wait_ns: Int64Array
    comm_ns: Int64Array
    phase_self_ns: Int64Array
    slowest_rank: int
    detail: StepDetail | None = None
    """Where it is asked for (``Options.details``)."""

    @property
    def present(self) -> BoolArray:
        """Which ranks have data in this step."""
        return self.self_ns >= 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposures:
    """The E joins of one step (rows where a rank stopped computing), in time order per rank.

    A last arriver that went on without stopping is here too, with nothing exposed, because
    its self time until then is what the others waited for.

    Attributes:
        row: (E,) row of ``Matches``.
        rank: (E,) ascending.
        wait_ns: (E,) the wait at this join.
        comm_ns: (E,) exposed communication at this join.
        phases: the P phases that the step knows, ascending.
        self_before_ns: (P, E) self time per phase from the step's start to the join.
        comm_before_ns: (E,) exposed communication from there to there.
        wait_before_ns: (E,) exposed wait from there to there.
        position_ns: (E,) time from there to there.
    """

    row: NDArray[np.intp]
    rank: Int64Array
    wait_ns: Int64Array
    comm_ns: Int64Array
    phases: Int64Array
    self_before_ns: Int64Array
    comm_before_ns: Int64Array
    wait_before_ns: Int64Array
    position_ns: Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDetail:
    """What is drawn of a step: its E joins as in ``Exposures``, and who was waited for (R,).

    ``caused_ns``, ``blamed_ns`` and ``last_count`` are those of ``StepBlame``, over all phases.
    """

    rank: Int64Array
    position_ns: Int64Array
    wait_ns: Int64Array
    comm_ns: Int64Array
    caused_ns: Int64Array
    blamed_ns: FloatArray
    last_count: Int64Array


def build_step(
    step: int,
    table: Table,
    matches: Matches,
    waits: Waits,
    behind_ns: Int64Array,
    world_size: int,
) -> tuple[StepRow, Exposures]:
    """Split the step of every rank into self time per phase, exposed wait and communication.

    Args:
        step: its number.
        table: all records of the step.
        matches: its collectives.
        waits: what they cost.
        behind_ns: (N,) how far the rows of ``matches`` lie behind their rank's timeline.
        world_size: R.

    Returns:
        The step's arrays, and its joins with the self time that led up to them.
    """
    begin, end = bounds(table, world_size)
    span = int((end - begin).max(initial=0)) + 1
    intervals = _Intervals(table, begin, end, span, world_size)

    stops = waits.exposed_ns > 0
    leads = _leads(matches, waits) & ~stops
    joins = (stops | leads) & (begin[matches.rows.rank] >= 0)
    joined = matches.written[joins[matches.written]]
    from_ns = np.where(stops, waits.exposed_start_ns, matches.rows.start_ns) - behind_ns
    until_ns = matches.rows.end_ns - behind_ns
    # A host that runs ahead has ended its step while its device still waits for this one.
    latest = np.where(behind_ns > 0, until_ns, end[matches.rows.rank])
    rank = matches.rows.rank[joined]
    stop = from_ns[joined]
    if not _in_order(rank, stop):  # as written they nearly always are
        order = np.lexsort((stop, rank))
        joined, rank, stop = joined[order], rank[order], stop[order]
    stop = np.maximum(stop, begin[rank])
    resume = np.where(stops[joined], np.minimum(until_ns[joined], latest[joined]), stop)
    inside = (resume > stop) | (leads[joined] & (stop <= end[rank]))
    joined, rank, stop, resume = joined[inside], rank[inside], stop[inside], resume[inside]
    exposed = resume - stop
    wait = np.minimum(waits.wait_ns[joined], exposed)
    phase = intervals.phase_at(rank, (stop + resume) // 2)
    first_of_rank = np.searchsorted(rank, np.arange(world_size))

    present = begin >= 0
    duration = np.where(present, end - begin, 0)
    exposed_of = _sum_by_rank(exposed, first_of_rank)
    wait_of = _sum_by_rank(wait, first_of_rank)
    self_before = intervals.spent_until(rank, stop)
    at_end = intervals.spent_until(np.arange(world_size), end)
    phase_self = np.zeros((world_size, PHASES), dtype=np.int64)
    for number, code in enumerate(intervals.phases.tolist()):
        here = phase == code
        exposed_whole: Int64Array | int = 0
        if here.any():
            exposed_here = np.where(here, exposed, 0)
            self_before[number] -= _before(exposed_here, rank, first_of_rank)
            exposed_whole = _sum_by_rank(exposed_here, first_of_rank)
        phase_self[:, code] = np.maximum(at_end[number] - exposed_whole, 0)
    np.maximum(self_before, 0, out=self_before)
    self_time = np.maximum(duration - exposed_of, 0)
    absent = ~present
    for array in (self_time, wait_of, phase_self):
        array[absent] = -1
    comm = np.where(absent, -1, exposed_of - np.maximum(wait_of, 0))
    row = StepRow(
        step=step,
        start_ns=np.where(present, begin, -1),
        duration_ns=int(median_of(duration[present])) if present.any() else 0,
        self_ns=self_time,
        wait_ns=wait_of,
        comm_ns=comm,
        phase_self_ns=phase_self,
        slowest_rank=int(np.argmax(self_time)) if (wait_of > 0).any() else -1,
    )
    exposures = Exposures(
        row=joined,
        rank=rank,
        wait_ns=wait,
        comm_ns=exposed - wait,
        phases=intervals.phases,
        self_before_ns=self_before,
        comm_before_ns=_before(exposed - wait, rank, first_of_rank),
        wait_before_ns=_before(wait, rank, first_of_rank),
        position_ns=stop - begin[rank],
    )
    return row, exposures


def _in_order(rank: Int64Array, time_ns: Int64Array) -> bool:
    """Whether rows are by rank, and by time within each."""
    later = (rank[1:] == rank[:-1]) & (time_ns[1:] >= time_ns[:-1])
    return bool((later | (rank[1:] > rank[:-1])).all())


def _before(values: Int64Array, rank: Int64Array, first_of_rank: NDArray[np.intp]) -> Int64Array:
    """Return (E,) the sum of the rank's values before each; values are together by rank."""
    running = np.append(0, np.cumsum(values))
    return np.asarray(running[:-1] - running[first_of_rank][rank])


def _sum_by_rank(values: Int64Array, first_of_rank: NDArray[np.intp]) -> Int64Array:
    """Return (R,) the sum of each rank's values, which are together by rank."""
    running = np.append(0, np.cumsum(values))
    return np.asarray(np.diff(np.append(running[first_of_rank], running[-1])))


def _leads(matches: Matches, waits: Waits) -> BoolArray:
    """Which rows are the last arrivals that somebody really stood still for."""
    leads = np.zeros(len(matches.rows), dtype=np.bool_)
    if len(matches.first):
        waited_for = np.add.reduceat(waits.wait_ns, matches.first) > 0
        leads[waits.last_row[waited_for & (waits.last_row >= 0)]] = True
    return leads


def bounds(table: Table, world_size: int) -> tuple[Int64Array, Int64Array]:
    """Return begin and end of the step on every rank, -1 where it has no STEP record."""
    begin = np.full(world_size, -1, dtype=np.int64)
    end = np.full(world_size, -1, dtype=np.int64)
    steps = np.flatnonzero((table.kind == RecordKind.STEP) & (table.end_ns >= table.start_ns))
    begin[table.rank[steps]] = table.start_ns[steps]
    end[table.rank[steps]] = table.end_ns[steps]
    return begin, end


class _Intervals:
    """The phases of all ranks on one axis: each rank's step is shifted to a stretch of its own."""

    def __init__(
        self, table: Table, begin: Int64Array, end: Int64Array, span: int, world_size: int
    ) -> None:
        self._begin = begin
        self._span = span
        chosen = np.flatnonzero(table.kind == RecordKind.PHASE)
        here = (begin[table.rank[chosen]] >= 0) & ~one_of(table.code[chosen], _OVERLAYS)
        chosen = chosen[here]
        rank = table.rank[chosen]
        start = np.clip(table.start_ns[chosen], begin[rank], end[rank])
        stop = np.clip(table.end_ns[chosen], begin[rank], end[rank])
        code = np.where((table.code[chosen] > 0) & (table.code[chosen] < PHASES),
                        table.code[chosen], Phase.HOST)  # fmt: skip
        if not _in_order(rank, start):
            order = time_order(rank, start - begin[rank])
            rank, code, start, stop = rank[order], code[order], start[order], stop[order]
        self.rank, self.code = rank, code
        self.start = self._shift(rank, start)
        # Phases do not overlap; should two, the later begins where the earlier ends.
        self.stop = np.maximum(self._shift(rank, stop), self.start)
        if len(rank):
            reached = np.maximum.accumulate(self.stop)
            self.start[1:] = np.maximum(self.start[1:], np.minimum(reached[:-1], self.stop[1:]))
        length = self.stop - self.start
        self._first = np.searchsorted(self.rank, np.arange(world_size), side="left")
        self.phases = distinct(np.append(self.code, int(Phase.HOST)))
        """(P,) the phases that occur, HOST among them."""
        self._spent = np.zeros((len(self.phases), len(rank) + 1), dtype=np.int64)
        for number, phase in enumerate(self.phases.tolist()):
            np.cumsum(np.where(self.code == phase, length, 0), out=self._spent[number, 1:])
        self._spent -= self._spent[:, np.append(self._first[rank], len(rank))]
        """(P, intervals + 1) what each interval's rank had spent in its step before it."""

    def _shift(self, rank: Int64Array, time_ns: Int64Array) -> Int64Array:
        since_begin = np.clip(time_ns - self._begin[rank], 0, self._span)
        return np.asarray(since_begin + rank * (self._span + 1), dtype=np.int64)

    def _last_started(self, rank: Int64Array, at: Int64Array) -> tuple[Int64Array, BoolArray]:
        index = np.searchsorted(self.start, at, side="right") - 1
        found = index >= self._first[rank]
        return index, found

    def phase_at(self, rank: Int64Array, time_ns: Int64Array) -> Int64Array:
        """Return the phase of each rank at each time; HOST where none covers it."""
        if not len(self.start):
            return np.full(len(rank), int(Phase.HOST), dtype=np.int64)
        at = self._shift(rank, time_ns)
        index, found = self._last_started(rank, at)
        covered = found & (at < self.stop[index])
        return np.where(covered, self.code[index], int(Phase.HOST))

    def spent_until(self, rank: Int64Array, time_ns: Int64Array) -> Int64Array:
        """Return (P, N) wall time per phase from the step's start to ``time_ns``."""
        at = self._shift(rank, time_ns)
        spent = np.zeros((len(self.phases), len(rank)), dtype=np.int64)
        if len(self.start):
            index, found = self._last_started(rank, at)
            index = np.where(found, index, 0)
            partial = np.maximum(np.minimum(at, self.stop[index]) - self.start[index], 0)
            code = self.code[index]
            for number, phase in enumerate(self.phases.tolist()):
                self._spent[number].take(index, out=spent[number])
                spent[number] += np.where(code == phase, partial, 0)
            if not found.all():
                spent[:, ~found] = 0
        host = int(np.searchsorted(self.phases, int(Phase.HOST)))
        spent[host] += at - rank * (self._span + 1) - spent.sum(axis=0)
        return spent
