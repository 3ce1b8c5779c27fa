"""Steps of a job that does not tell them: where the sizes of a collective repeat.

The function of one kind of communicator sets the pace. Its numbers (``coll_sn``) with their sizes
are looked at for a period; it is taken when it holds for every number that was seen. Where sizes
do not differ, or do not repeat, windows of equally many collectives stand for steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.vocabulary import BARRIER_LIKE_OPS
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.importers.nccl_inspector.instances import Instances
from paceline_service.importers.nccl_inspector.moments import Moments
from paceline_service.importers.nccl_inspector.records import Recorded

WINDOWS, MOST_TURNS = 80, 8
"""So many windows are enough for the evidence, and each is to be as long as it can, because a part
of a step is a bad measure; but no window need hold more turns than that."""
LEAST_TURNS, ENOUGH_TURNS = 20, 60
"""What comes round so often can be a step; where it does it so often, steps need not be finer."""
OCCASIONAL = 8
"""What comes round so much less often than something else is no step but an occasion."""
LEAST_REPEATS = 3
LONGEST_PERIOD = 1 << 14
WARM_UP_SHARE = 0.2
"""Of the numbers at the beginning that need not fit the period: set-up and first steps differ."""
MOST_IN_COMMON, EVEN_SHARE = 16, 0.06
"""How many of the pacing collectives may make a step, and what the last, half one may be off."""
MAX_ENDS = 50_000_000
"""Steps of all ranks, 400 MB; more are not made of the records that are read."""
REGULAR_SHARE = 0.95
"""Of the collectives of a kind that lie within a step of where counting puts them."""
_BARRIER_LIKE = np.array(sorted(int(op) for op in BARRIER_LIKE_OPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Where each of I instances belongs.

    Attributes:
        of_instance: (I,) step, ascending with time, from 0.
        end_ns: (S,) when each step ended, as ``Moments`` tells it.
        period: collectives of the pacing function in a step.
        proved: whether the sizes repeat with that period; else it is a window.
        pace: the pacing function and the size of its communicators, in words.
    """

    of_instance: Int64Array
    end_ns: Int64Array
    period: int
    proved: bool
    pace: str
    kind: Int64Array
    """(I,) number of the function in its kind of communicator, -1 for those without one."""
    own_end_ns: dict[int, Int64Array]
    """By rank that is paced: (S,) when each step ended on the clock of its host."""


def assign_steps(
    recorded: Recorded, instances: Instances, moments: Moments, hosts: Mapping[int, str]
) -> Steps:
    """Give every instance its step.

    Args:
        recorded: the records.
        instances: at least one, of which one is comparable.
        moments: when each record ended.
        hosts: of each rank.

    Raises:
        InputError: the ranks hardly tell of the same time.
    """
    paces = [_pace_of(instances, mine, reached) for mine, reached in _kinds_of(recorded, instances)]
    pace = _pacing(paces)
    pacing, numbers, period = pace.chosen, pace.numbers, pace.period
    sn = instances.sn[pacing]
    proved = period > 1
    if not proved:
        period = _common(paces, pace)
        turns = len(numbers) // period
        period *= max(1, turns // max(WINDOWS, turns // MOST_TURNS))
    number = sn // period if proved else np.searchsorted(numbers, sn) // period
    number -= number.min()

    row_end = moments.end_ns[instances.row]
    of_row = np.full(len(instances), -1, dtype=np.int64)
    of_row[pacing] = number
    paced = of_row[instances.instance]
    steps = int(number.max()) + 1
    ranks, of = np.unique(instances.rank, return_inverse=True)
    of = of.reshape(-1)
    if len(ranks) * steps > MAX_ENDS:
        raise InputError(
            f"the records of {len(ranks):,} ranks make {steps:,} steps, of which each tells only "
            "few; give files that cover the same time"
        )
    own_end = _ends(paced, row_end, of, len(ranks), steps)
    bounds = moments.bounds_ns
    job_end = _of_the_job(
        own_end,
        bounds
        and (
            _ends(paced, bounds[0][instances.row], of, len(ranks), steps),
            _ends(paced, bounds[1][instances.row], of, len(ranks), steps),
        ),
        np.unique([hosts[rank] for rank in ranks.tolist()], return_inverse=True)[1].reshape(-1),
    )
    own = _own_ends(own_end, job_end)
    unknown = np.flatnonzero(of_row < 0)
    if len(unknown):
        loose = np.flatnonzero(paced < 0)
        voted = np.empty(len(loose), dtype=np.int64)
        for rank in np.unique(of[loose]).tolist():
            mine = of[loose] == rank
            # A process that is not in the pacing communicators goes by the job's own times.
            voted[mine] = np.searchsorted(own.get(rank, job_end), row_end[loose][mine], side="left")
        vote = np.zeros(len(instances.row), dtype=np.int64)
        vote[loose] = np.minimum(voted, steps - 1)
        count = np.diff(np.append(instances.first, len(vote)))
        mean = np.add.reduceat(vote, instances.first) / count
        of_row[unknown] = np.rint(mean[unknown])
        for others in paces:
            if others is not pace:
                of_row[others.chosen] = _regular(instances.sn[others.chosen], of_row[others.chosen])
        _ascend(instances, of_row, unknown)
        of_row = np.clip(of_row, 0, steps - 1)
    kind = np.full(len(instances), -1, dtype=np.int64)
    for place, one in enumerate(paces):
        kind[one.chosen] = place
    func = recorded.functions[int(instances.func[pacing[0]])]
    members = recorded.communicators[int(instances.comm[pacing[0]])].size
    return Steps(
        of_instance=of_row, end_ns=job_end, period=period, proved=proved,
        pace=f"{func} of communicators of {members} ranks", kind=kind,
        own_end_ns={int(ranks[place]): ends for place, ends in own.items()},
    )  # fmt: skip


def find_period(numbers: Int64Array, size: Int64Array) -> int:
    """Return the smallest period of ``size`` over ``numbers``, 1 for none.

    Args:
        numbers: (n,) ascending; some may be missing, because they were lost or are too small to
            be recorded.
        size: (n,) payload of each.

    Returns:
        P > 1 such that sizes of numbers P apart are equal wherever both are known, apart from a
        beginning, and that are there ``LEAST_REPEATS`` times.
    """
    span = int(numbers[-1] - numbers[0]) + 1
    if len(numbers) < 2 * LEAST_REPEATS or span > 64 * len(numbers):
        return 1
    dense = np.full(span, -1, dtype=np.int64)
    dense[numbers - numbers[0]] = size
    dense = dense[int(span * WARM_UP_SHARE) :]
    known = dense >= 0
    # First with what is never recorded (too small) as a part of the pattern, then without.
    return _period(dense, np.ones_like(known)) or _period(dense, known) or 1


def _period(dense: Int64Array, known: BoolArray) -> int:
    """Return the smallest period over 1 of what is known of ``dense``, 0 for none."""
    sizes, count = np.unique(dense[known], return_counts=True)
    if len(sizes) < 2:
        return 0
    # A period brings the rarest back: only such distances can be one.
    rarest = sizes[np.argmin(np.where(count >= LEAST_REPEATS, count, len(dense)))]
    rare = np.flatnonzero(dense == rarest)
    longest = min(len(dense) // LEAST_REPEATS, LONGEST_PERIOD)
    for period in np.unique(rare[1:] - rare[0]).tolist():
        if period > longest:
            break
        both = known[period:] & known[:-period]
        if both.sum() * 2 < len(both):
            continue
        if (dense[period:][both] == dense[:-period][both]).all():
            return int(period)
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """One function in one kind of communicator.

    Attributes:
        chosen: its instances.
        numbers: (n,) their numbers, ascending.
        period: of the sizes over the numbers, 1 for none.
        reached: how many ranks are in it.
    """

    chosen: Int64Array
    numbers: Int64Array
    period: int
    reached: int

    @property
    def turns(self) -> int:
        """How often it came round."""
        return len(self.numbers) // self.period


def _pacing(paces: Sequence[_Pace]) -> _Pace:
    """Return what sets the pace: of those that reach the most ranks what comes round least often.

    Within a step much repeats, layer by layer; the step is what repeats most slowly. What happens
    too seldom for a judgement, such as a check every hundred steps, is passed over.
    """
    most = max(pace.reached for pace in paces)
    paces = sorted((p for p in paces if p.reached == most), key=lambda pace: pace.turns)
    often = [pace for pace in paces if pace.turns >= LEAST_TURNS] or paces[-1:]
    best = often[0]
    for pace in often[1:]:
        if best.turns < ENOUGH_TURNS and pace.turns >= OCCASIONAL * best.turns:
            best = pace
    return best


def _common(paces: Sequence[_Pace], pace: _Pace) -> int:
    """Return how many of the pacing collectives all others come round with, 1 where they do not.

    Three of one and four of another in each step are counted 240 to 320: windows of three hold
    whole steps, and smaller ones do not.
    """
    ratios = [
        (int(other.numbers[-1]) + 1) / (int(pace.numbers[-1]) + 1)
        for other in paces
        if other is not pace and other.turns >= pace.turns
    ]
    for count in range(1, MOST_IN_COMMON + 1):
        if ratios and all(abs(r * count - round(r * count)) <= EVEN_SHARE for r in ratios):
            return count
    return 1


def _regular(sn: Int64Array, step: Int64Array) -> Int64Array:
    """Return the steps of what happens equally often in each, told by the numbers.

    When a collective was over is known only about as exactly as its dump. Where the numbers of
    these communicators go on by one amount a step, they tell the steps exactly.
    """
    span = int(step.max() - step.min())
    if span < LEAST_REPEATS:
        return step
    slope = np.polyfit(step, sn, 1)[0]
    each = round(float(slope))
    if each < 1 or abs(slope - each) * span > each:
        return step
    # In the middle of its step a number is each / 2 beyond the step's first.
    first = round(float(np.median(sn - each * step) - (each - 1) / 2))
    told = (sn - first) // each
    return told if (np.abs(told - step) <= 1).mean() >= REGULAR_SHARE else step


def _pace_of(instances: Instances, chosen: Int64Array, reached: int) -> _Pace:
    numbers, where = np.unique(instances.sn[chosen], return_index=True)
    period = find_period(numbers, instances.payload_bytes[chosen][where])
    return _Pace(chosen=chosen, numbers=numbers, period=period, reached=reached)


def _kinds_of(recorded: Recorded, instances: Instances) -> Iterator[tuple[Int64Array, int]]:
    """Yield the instances of one function in one kind of communicator, and the ranks it reaches.

    Communicators are of one kind when they have one size and tell of the same payloads, and share
    no process.
    """
    chosen = np.flatnonzero(np.isin(instances.op, _BARRIER_LIKE))
    kinds: dict[tuple[int, int, frozenset[int]], list[int]] = {}
    for comm in np.unique(instances.comm[chosen]).tolist():
        here = chosen[instances.comm[chosen] == comm]
        for func in np.unique(instances.func[here]).tolist():
            mine = here[instances.func[here] == func]
            payloads = frozenset(np.unique(instances.payload_bytes[mine]).tolist())
            key = (recorded.communicators[comm].size, func, payloads)
            kinds.setdefault(key, []).append(comm)
    comm_of_row = instances.comm[instances.instance]
    for (size, func, _), comms in kinds.items():
        rows = np.isin(comm_of_row, comms)
        pairs = np.unique(np.stack([instances.rank[rows], comm_of_row[rows]], axis=1), axis=0)
        reached = len(np.unique(pairs[:, 0]))
        if reached < len(pairs):  # two of them on one process: what they count is not one thing
            comms, reached = comms[:1], size
        mine = chosen[np.isin(instances.comm[chosen], comms) & (instances.func[chosen] == func)]
        yield mine, reached


def _ends(
    paced: Int64Array, end_ns: Int64Array, of: Int64Array, count: int, steps: int
) -> Int64Array:
    """Return (count, steps) the last end of each step on each, -1 where there is none."""
    ends = np.full((count, steps), -1, dtype=np.int64)
    here = paced >= 0
    np.maximum.at(ends, (of[here], paced[here]), end_ns[here])
    return ends


def _own_ends(own_end: Int64Array, job_end: Int64Array) -> dict[int, Int64Array]:
    """Return (S,) the ends of steps of each rank that tells some, the others from the job's."""
    ends = {}
    for place, mine in enumerate(own_end):
        told = mine >= 0
        if told.any():
            ahead = int(np.median((mine - job_end)[told]))
            ends[place] = np.maximum.accumulate(np.where(told, mine, job_end + ahead))
    return ends


def _of_the_job(
    own_end: Int64Array, bounds: tuple[Int64Array, Int64Array] | None, host: Int64Array
) -> Int64Array:
    """Return (S,) when each step ended; those that nobody tells lie between neighbours.

    Args:
        own_end: (R, S) as each rank tells it, on its host's clock, -1 where it does not.
        bounds: (R, S) after and before which it was for certain; None where that is not known.
        host: (R,) a number for the host of each, whose ranks share a clock.
    """
    told = own_end >= 0
    base = int(own_end[told].min())
    ends = np.where(told, own_end - base, np.nan).astype(np.float64)
    some = told.any(axis=0)
    # Hosts differ in their clocks: what one is ahead of the others is taken off first.
    middle = np.nanmedian(ends[:, some], axis=0)
    ahead = np.zeros(len(ends))
    for one in np.unique(host[told.any(axis=1)]).tolist():
        ahead[host == one] = np.nanmedian(ends[host == one][:, some] - middle)
    middle = np.nanmedian(ends[:, some] - ahead[:, None], axis=0)
    if bounds is not None:
        # All left together: after the latest of the dumps before it, before the earliest after.
        since, until = (
            np.where(told, bound - base, np.nan)[:, some] - ahead[:, None] for bound in bounds
        )
        earliest, latest = np.nanmax(since, axis=0), np.nanmin(until, axis=0)
        between = np.where(
            2 * (latest - earliest) < np.median(np.diff(middle, prepend=0.0)),
            (earliest + latest) / 2,
            np.clip(middle, earliest, latest),
        )
        middle = np.where(earliest < latest, between, middle)
    filled = np.interp(np.arange(own_end.shape[1]), np.flatnonzero(some), middle)
    return np.asarray(np.maximum.accumulate(filled.astype(np.int64)) + base, dtype=np.int64)


def _ascend(instances: Instances, step: Int64Array, loose: Int64Array) -> None:
    """Let the steps of one communicator's function ascend with its numbers, in place."""
    order = loose[np.lexsort((instances.sn[loose], instances.func[loose], instances.comm[loose]))]
    cuts = np.flatnonzero(
        (np.diff(instances.comm[order]) != 0) | (np.diff(instances.func[order]) != 0)
    )
    for part in np.split(order, cuts + 1):
        step[part] = np.maximum.accumulate(step[part])
