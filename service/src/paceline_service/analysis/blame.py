"""Whose delay made whom wait, conserved to the nanosecond (docs/math/blame.md).

Delay analysis after Boehme et al. (ICPP 2010): a wait is charged to the phases in which the
last arriver spent longer than the waiter since both were last in step; where the last arriver
had itself been kept waiting, its share goes on to that wait, replayed backwards in time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from paceline_service.analysis.matching import Matches
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.timeline import PHASES, Exposures, StepRow
from paceline_service.analysis.waits import Waits

DELAY_FLOOR_NS = 20_000
"""A delay that cannot be told from the cost of measuring explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBlame:
    """Who is charged with the waits of one step, ns.

    Attributes:
        blamed_ns: (R, 7) charged to each rank and phase.
        caused_ns: (R,) waits at collectives where the rank arrived last; names victims too.
        last_count: (R,) how often the rank arrived last, where that is significant.
        unattributed_ns: waits that nobody's delay explains. ``blamed_ns.sum()`` and this are
            together the waits of the step.
    """

    blamed_ns: FloatArray
    caused_ns: Int64Array
    last_count: Int64Array
    unattributed_ns: float


@dataclass(slots=True)
class _Sync:
    """Totals of a group's members at the last collective that held them all together."""

    self_ns: Int64Array
    wait_ns: Int64Array
    step: int
    position: dict[int, int] = field(default_factory=dict)


class BlameLedger:
    """Charges the waits of one step after the other; keeps totals since each group's last sync."""

    def __init__(self, world_size: int) -> None:
        self._self_ns = np.zeros((world_size, PHASES), dtype=np.int64)
        self._wait_ns = np.zeros(world_size, dtype=np.int64)
        self._sync: dict[int, _Sync] = {}

    def charge(
        self, row: StepRow, matches: Matches, waits: Waits, exposures: Exposures
    ) -> StepBlame:
        """Charge the waits of the step ``row``; the steps must come in order."""
        ranks = len(row.self_ns)
        blamed = np.zeros((ranks, PHASES))
        caused = np.zeros(ranks, dtype=np.int64)
        last_count = np.zeros(ranks, dtype=np.int64)
        led = waits.last_rank[waits.last_rank >= 0]
        np.add.at(last_count, led, 1)
        unattributed = 0.0

        wait_before = np.cumsum(exposures.wait_ns) - exposures.wait_ns
        if len(exposures.rank):
            wait_before -= wait_before[np.searchsorted(exposures.rank, exposures.rank)]
        joins = _joins_by_instance(matches, exposures)
        plan = self._walk_forward(row.step, matches, waits, exposures, wait_before, joins)

        cost = exposures.wait_ns.astype(np.float64)
        of_rank = np.searchsorted(exposures.rank, np.arange(ranks + 1))
        for delay in reversed(plan):
            charge = cost[delay.waiters]
            leader = delay.leader
            caused[leader] += int(exposures.wait_ns[delay.waiters].sum())
            share = np.divide(
                charge, delay.total_ns, out=np.zeros_like(charge), where=delay.total_ns > 0
            )
            unattributed += float(charge[delay.total_ns <= 0].sum())
            blamed[leader] += share @ delay.by_phase_ns
            unattributed += float(share @ delay.earlier_wait_ns)
            span = slice(of_rank[leader], of_rank[leader + 1])
            position = exposures.position_ns[span]
            for part, since in zip(share, delay.since_ns, strict=True):
                if part > 0:
                    between = (position >= since) & (position < delay.until_ns)
                    cost[span] += np.where(between, part * exposures.wait_ns[span], 0.0)
        accounted = np.zeros(len(cost), dtype=np.bool_)
        for delay in plan:
            accounted[delay.waiters] = True
        unattributed += float(cost[~accounted].sum())

        present = row.present
        self._self_ns[present] += row.phase_self_ns[present]
        self._wait_ns[present] += row.wait_ns[present]
        return StepBlame(
            blamed_ns=blamed, caused_ns=caused, last_count=last_count,
            unattributed_ns=unattributed,
        )  # fmt: skip

    def _walk_forward(
        self,
        step: int,
        matches: Matches,
        waits: Waits,
        exposures: Exposures,
        wait_before: Int64Array,
        joins: dict[int, Int64Array],
    ) -> list[_Delay]:
        """Find, for each instance with a wait, how much longer its leader took than each waiter."""
        plan = []
        for instance in causal_order(matches.instance[exposures.row], exposures.rank):
            members = joins[instance]
            rank = exposures.rank[members]
            now_self = self._self_ns[rank] + exposures.self_before_ns[members]
            now_wait = self._wait_ns[rank] + wait_before[members]
            group = int(matches.rows.group[matches.first[instance]])
            leader_row = int(waits.last_row[instance])
            leader = np.flatnonzero(exposures.row[members] == leader_row)
            waiting = np.flatnonzero(exposures.wait_ns[members] > 0)
            last = self._sync.get(group)
            if len(leader) and len(waiting):
                plan.append(
                    self._delay(step, last, rank, now_self, now_wait, int(leader[0]), waiting,
                                members, exposures)
                )  # fmt: skip
            first, size = int(matches.first[instance]), len(members)
            if size > 1 and matches.complete[instance] and _covers(matches, first, size):
                self._sync[group] = _Sync(
                    self_ns=now_self,
                    wait_ns=now_wait + exposures.wait_ns[members],
                    step=step,
                    position={
                        int(r): int(p)
                        for r, p in zip(rank, exposures.position_ns[members], strict=True)
                    },
                )
        return plan

    def _delay(
        self,
        step: int,
        last: _Sync | None,
        rank: Int64Array,
        now_self: Int64Array,
        now_wait: Int64Array,
        leader: int,
        waiting: Int64Array,
        members: Int64Array,
        exposures: Exposures,
    ) -> _Delay:
        if last is not None and len(last.self_ns) == len(rank):
            now_self = now_self - last.self_ns
            now_wait = now_wait - last.wait_ns
            same_step = last.step == step
            since = last.position.get(int(rank[leader]), 0) + 1 if same_step else 0
        else:
            now_wait = now_wait - self._wait_ns[rank]
            now_self = now_self - self._self_ns[rank]
            since = 0
        longer = np.maximum(now_self[leader] - now_self[waiting], 0)
        own_wait = max(int(now_wait[leader]), 0)
        until = int(exposures.position_ns[members[leader]])
        at = exposures.rank == rank[leader]
        in_step = at & (exposures.position_ns >= since) & (exposures.position_ns < until)
        earlier_wait = max(own_wait - int(exposures.wait_ns[in_step].sum()), 0)
        own_wait = int(exposures.wait_ns[in_step].sum()) + earlier_wait
        total = longer.sum(axis=1) + own_wait
        total = np.where(total > DELAY_FLOOR_NS, total, 0).astype(np.float64)
        return _Delay(
            leader=int(rank[leader]),
            waiters=members[waiting],
            by_phase_ns=longer.astype(np.float64),
            earlier_wait_ns=np.full(len(waiting), float(earlier_wait)),
            total_ns=total,
            since_ns=np.full(len(waiting), since),
            until_ns=until,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Delay:
    """One instance: its leader, its W waiters (indexes of exposures), and the leader's delay."""

    leader: int
    waiters: Int64Array
    by_phase_ns: FloatArray
    earlier_wait_ns: FloatArray
    total_ns: FloatArray
    since_ns: Int64Array
    until_ns: int


def _joins_by_instance(matches: Matches, exposures: Exposures) -> dict[int, Int64Array]:
    """Return, per instance, the indexes of its exposures in rank order."""
    if not len(exposures.row):
        return {}
    instance = matches.instance[exposures.row]
    order = np.lexsort((exposures.rank, instance))
    found, begin = np.unique(instance[order], return_index=True)
    parts = np.split(order, begin[1:])
    return {int(i): part for i, part in zip(found, parts, strict=True)}


def causal_order(instance: Int64Array, rank: Int64Array) -> list[int]:
    """Return the instances so that what any rank joined first comes first (Kahn).

    Clocks of different ranks are never compared. Should records contradict each other, what
    remains is taken as it comes.

    Args:
        instance: (E,) instance of each join, ranks together and in time order.
        rank: (E,) rank of each join.
    """
    after: dict[int, list[int]] = {}
    blockers: dict[int, int] = dict.fromkeys(instance.tolist(), 0)
    for before, then, one, other in zip(
        instance[:-1].tolist(), instance[1:].tolist(), rank[:-1].tolist(), rank[1:].tolist(),
        strict=True,
    ):  # fmt: skip
        if one == other and before != then:
            after.setdefault(before, []).append(then)
            blockers[then] += 1
    ready = [i for i, count in blockers.items() if not count]
    order: list[int] = []
    done: set[int] = set()
    while len(order) < len(blockers):
        if not ready:
            ready = [next(i for i in blockers if i not in done)]
        current = ready.pop()
        if current in done:
            continue
        done.add(current)
        order.append(current)
        for follower in after.get(current, ()):
            blockers[follower] -= 1
            if blockers[follower] == 0:
                ready.append(follower)
    return order


def _covers(matches: Matches, first: int, size: int) -> bool:
    """Whether ``size`` joins are all the rows of the instance that begins at ``first``."""
    at_end = first + size >= len(matches.rows)
    return bool(
        matches.instance[first + size - 1] == matches.instance[first]
        and (at_end or matches.instance[first + size] != matches.instance[first])
    )
