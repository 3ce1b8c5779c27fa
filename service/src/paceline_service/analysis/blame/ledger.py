"""Whose delay made whom wait, conserved to the nanosecond (docs/math/blame.md).

Delay analysis after Boehme et al. (ICPP 2010): a wait is charged to the phases in which the
last arriver spent longer than the waiter since both were last in step; where the last arriver
had itself been kept waiting, its share goes on to that wait, replayed backwards in time.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.blame.excess import Excess
from paceline_service.analysis.blame.joins import Joins
from paceline_service.analysis.blame.levels import IndexArray, find_levels
from paceline_service.analysis.blame.plan import Plan, dot
from paceline_service.analysis.blame.syncs import COMM, KEPT_PER_RANK, ROWS, WAIT, Syncs
from paceline_service.analysis.blame.timeline import PHASES, Exposures, StepRow
from paceline_service.analysis.blame.waits import Waits
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.records import FloatArray, Int64Array

DELAY_FLOOR_NS = 20_000
"""A delay that cannot be told from the cost of measuring explains nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBlame:
    """Who is charged with the waits of one step, ns.

    Attributes:
        blamed_ns: (R, 7) charged to each rank and phase.
        network_ns: (R,) charged to the transfers of each rank: it was waited for because it had
            stood longer in communication than the others. Part of ``unattributed_ns``.
        schedule_ns: charged to nobody, because ranks of the same role take as long: the bubbles
            of a pipeline. Part of ``unattributed_ns`` too.
        caused_ns: (R,) waits at collectives where the rank arrived last; names victims too.
        last_count: (R,) how often the rank arrived last, where that is significant.
        unattributed_ns: waits that no rank's own delay explains. ``blamed_ns.sum()`` and this
            are together the waits of the step.
    """

    blamed_ns: FloatArray
    network_ns: FloatArray
    schedule_ns: float
    caused_ns: Int64Array
    last_count: Int64Array
    unattributed_ns: float


class BlameLedger:
    """Charges the waits of one step after the other; keeps totals since each group's last sync.

    What a leader inherits from the step before is charged there: the plan of that step is kept.
    """

    def __init__(self, world_size: int) -> None:
        self._totals = np.zeros((ROWS, world_size), dtype=np.int64)
        """Self time by phase, exposed communication and wait of each rank so far."""
        self._syncs = Syncs.none()
        self._steps = 0
        self._before: Plan | None = None

    def charge(
        self,
        row: StepRow,
        matches: Matches,
        waits: Waits,
        exposures: Exposures,
        peer_groups: list[Int64Array],
    ) -> StepBlame:
        """Charge the waits of the step ``row``; the steps must come in order."""
        ranks = len(row.self_ns)
        joins = Joins(matches, exposures, ranks)
        peers = Excess(row.phase_self_ns, row.comm_ns, peer_groups)
        plan = self._plan(joins, waits, exposures, peers)
        charge = plan.distribute(np.ones(len(exposures.row)))
        by_row_ns, unattributed_ns = charge.by_row_ns, charge.unattributed_ns
        schedule_ns = charge.schedule_ns
        if self._before is not None:
            factor, older_ns = self._before.inherit(plan, charge.share)
            unattributed_ns += older_ns
            if factor.any():
                earlier = self._before.distribute(factor)
                by_row_ns = by_row_ns + earlier.by_row_ns
                schedule_ns += earlier.schedule_ns
                unattributed_ns += earlier.unattributed_ns
                unattributed_ns += dot(self._before.earlier_ns, earlier.share)
        else:
            unattributed_ns += dot(plan.earlier_ns, charge.share)
        self._before = plan
        self._remember(joins, exposures)
        present = row.present
        self._totals[:PHASES, present] += row.phase_self_ns[present].T
        self._totals[COMM, present] += row.comm_ns[present]
        self._totals[WAIT, present] += row.wait_ns[present]
        self._steps += 1
        return StepBlame(
            blamed_ns=by_row_ns[:PHASES].T,
            network_ns=by_row_ns[COMM],
            caused_ns=plan.caused_ns(),
            last_count=np.bincount(waits.last_rank[waits.last_rank >= 0], minlength=ranks),
            schedule_ns=schedule_ns,
            unattributed_ns=unattributed_ns + schedule_ns + float(by_row_ns[COMM].sum()),
        )

    def _plan(self, joins: Joins, waits: Waits, exposures: Exposures, peers: Excess) -> Plan:
        wait_ns = exposures.wait_ns
        lead = np.append(joins.of_row, -1)[waits.last_row]
        waiter = joins.by_instance[wait_ns[joins.by_instance] > 0]
        instance = joins.instance(waiter)
        led = lead[instance] >= 0
        waiter, instance = waiter[led], instance[led]
        new = np.ones(len(waiter), dtype=np.bool_)
        new[1:] = instance[1:] != instance[:-1]
        first = np.flatnonzero(new)
        number = np.cumsum(new) - 1
        leader = lead[instance[first]]
        elapsed = self._since_sync(joins, exposures, leader)
        own = self._since_sync(joins, exposures, waiter)
        delays_ns = np.zeros((COMM + 1, len(waiter)), dtype=np.int64)
        used = sorted(elapsed.used | own.used)
        for row in used:
            np.subtract(elapsed.totals[row].take(number), own.totals[row], out=delays_ns[row])
            np.maximum(delays_ns[row], 0, out=delays_ns[row])
        excess_ns = peers.of(
            delays_ns, elapsed.totals[: COMM + 1], number,
            exposures.rank[leader], exposures.rank[waiter], used,
        )  # fmt: skip
        delay_ns = delays_ns[used].sum(axis=0)
        sums = np.append(0, np.cumsum(wait_ns))
        in_step_ns = sums[leader] - sums[elapsed.begin]
        earlier_ns = np.maximum(elapsed.totals[WAIT] - in_step_ns, 0)
        explained_ns = delay_ns + (in_step_ns + earlier_ns)[number]
        count = np.diff(np.append(first, len(waiter)))
        return Plan(
            ranks=self._totals.shape[1],
            wait_ns=wait_ns,
            rank_end=joins.rank_end,
            waiter=waiter,
            first=first,
            leader=exposures.rank[leader],
            delay_ns=delay_ns,
            excess_ns=excess_ns,
            used=used,
            explained_ns=np.where(explained_ns > DELAY_FLOOR_NS, explained_ns, 0).astype(float),
            begin=elapsed.begin,
            end=leader,
            earlier_ns=earlier_ns.astype(np.float64),
            since=elapsed.since,
            levels=find_levels(
                np.flatnonzero(in_step_ns > 0),
                waiter=waiter, first=first, count=count, leader=leader,
                begin=elapsed.begin, end=leader, rank=exposures.rank,
            ),
        )  # fmt: skip

    def _since_sync(self, joins: Joins, exposures: Exposures, chosen: IndexArray) -> _Elapsed:
        """Return what the chosen exposures' ranks spent since their group's last sync."""
        before = joins.previous(chosen)
        totals = np.zeros((ROWS, len(chosen)), dtype=np.int64)
        for row, spent_ns, until_ns in _spent(exposures):
            # Where nothing was before, ``before`` is -1, and the last value is 0.
            np.subtract(
                spent_ns.take(chosen), np.append(until_ns, 0).take(before, mode="wrap"),
                out=totals[row],
            )  # fmt: skip
        rest = np.flatnonzero(before < 0)
        begin = before + 1
        begin[rest] = joins.rank_first[exposures.rank[chosen[rest]]]
        since = np.full(len(chosen), -1, dtype=np.intp)
        entry = self._syncs.find(joins.keys(chosen[rest]))
        rest, entry = rest[entry >= 0], entry[entry >= 0]
        earlier = self._totals[:, exposures.rank[chosen[rest]]] - self._syncs.totals[:, entry]
        totals[:, rest] += earlier
        used = {*exposures.phases.tolist(), COMM, *np.flatnonzero(earlier.any(axis=1)).tolist()}
        last_step = self._syncs.step[entry] == self._steps - 1
        since[rest] = np.where(last_step, self._syncs.next_exposure[entry], -1)
        return _Elapsed(
            totals=totals, used=used - {WAIT}, begin=np.minimum(begin, chosen), since=since
        )

    def _remember(self, joins: Joins, exposures: Exposures) -> None:
        """Keep the last sync of every group and pair of this step."""
        chosen = joins.last()
        totals = self._totals[:, exposures.rank[chosen]]
        for row, _, until_ns in _spent(exposures):
            totals[row] += until_ns[chosen]
        key = joins.keys(chosen)
        order = np.argsort(key, kind="stable")
        newer = Syncs(
            key=key[order],
            totals=totals[:, order],
            step=np.full(len(chosen), self._steps, dtype=np.int64),
            next_exposure=chosen[order] + 1,
        )
        self._syncs = self._syncs.update(newer, KEPT_PER_RANK * self._totals.shape[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Elapsed:
    """What N ranks spent since a sync.

    Attributes:
        totals: (ROWS, N) as in ``Syncs``.
        used: the rows before ``WAIT`` that may hold something else than 0.
        begin: (N,) the rank's first exposure in this step since then.
        since: (N,) its first one in the step before, -1 where the sync was not there.
    """

    totals: Int64Array
    used: set[int]
    begin: IndexArray
    since: IndexArray


def _spent(exposures: Exposures) -> Iterator[tuple[int, Int64Array, Int64Array]]:
    """Yield rows of totals: what was spent from the step's start to each exposure, and past it."""
    for phase, self_ns in zip(exposures.phases.tolist(), exposures.self_before_ns, strict=True):
        yield phase, self_ns, self_ns
    for row, before_ns, own_ns in (
        (COMM, exposures.comm_before_ns, exposures.comm_ns),
        (WAIT, exposures.wait_before_ns, exposures.wait_ns),
    ):
        yield row, before_ns, before_ns + own_ns
