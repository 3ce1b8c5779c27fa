"""Whether times allow a pairing of sends with receives; order proves little there (align.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paceline_service.analysis.matching.align import CLOCK_TOLERANCE_NS, Refused
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto.order import Paired, Proof
from paceline_service.importers.kineto.rank import RankTimeline

MOSTLY_TOGETHER = 0.8
"""Where so many transfers end on both sides at once they are too large to be sent ahead, and none
can end on one side alone."""

_REPEATS = (
    "sends and receives repeat themselves, and nothing tells which belong together; number the "
    "steps with profiler.step()"
)


LEAST_TRANSFERS = 4
"""Of which clocks that nothing else tells are set; they agree with fewer too easily."""


class Clocks:
    """How far the ranks' clocks are apart, from what all members of a group leave together."""

    def __init__(self, paired: Sequence[Paired], timelines: Mapping[int, RankTimeline]) -> None:
        self._late_ns: dict[int, tuple[int, float]] = {}
        for number, one in enumerate(sorted(paired, key=lambda p: -len(p.members))):
            members = one.members.tolist()
            if not one.barrier_like.any():
                continue
            end = np.stack(
                [timelines[rank].calls.end_ns[one.rows[:, i]] for i, rank in enumerate(members)],
                axis=1,
            )[one.barrier_like]
            late_ns = median_of(end - end[:, :1], axis=0)
            self._join(number, members, late_ns.tolist())

    def apart_ns(self, rank: int, other: int) -> float | None:
        """Return by how much a clock shows more than another; None where nothing tells."""
        mine, theirs = self._late_ns.get(rank), self._late_ns.get(other)
        if mine is None or theirs is None or mine[0] != theirs[0]:
            return None
        return mine[1] - theirs[1]

    def _join(self, number: int, members: list[int], late_ns: list[float]) -> None:
        """Set the clocks of a group by those of its members that are known already."""
        known = {
            self._late_ns[rank][0]: self._late_ns[rank][1] - late
            for rank, late in zip(members, late_ns, strict=True)
            if rank in self._late_ns
        }
        into = min(known, default=number)
        for rank, (part, late) in list(self._late_ns.items()):
            if part in known and part != into:
                self._late_ns[rank] = (into, late - known[part] + known[into])
        for rank, late in zip(members, late_ns, strict=True):
            self._late_ns.setdefault(rank, (into, late + known.get(into, 0.0)))


def contradicted(
    paired: Paired, timelines: Mapping[int, RankTimeline], clocks: Clocks
) -> Refused | None:
    """Return why sends and receives cannot be what they were paired as, or None.

    No receive ends before its send began. If nearly all end on both sides at once, all do. Where
    the order repeats itself and nothing else tells, they have to.
    """
    key, members = paired.key, paired.members.tolist()
    apart_ns = clocks.apart_ns(key.destination, key.source)
    if len(members) < 2:
        return None
    start, end = {}, {}
    for i, rank in enumerate(members):
        calls = timelines[rank].calls
        start[rank], end[rank] = (t[paired.rows[:, i]] for t in (calls.start_ns, calls.end_ns))
    known = apart_ns is not None
    if not known:
        if paired.proof == Proof.LENGTHS or len(paired.rows) < LEAST_TRANSFERS:
            return Refused(reason=_REPEATS)
        apart_ns = median_of(end[key.destination] - end[key.source])
    late = round(apart_ns or 0.0)
    early_ns: Int64Array = start[key.source] - (end[key.destination] - late)
    if (early_ns > CLOCK_TOLERANCE_NS).any():
        worst = int(np.argmax(early_ns))
        return Refused(
            reason=f"the order agrees but the times cannot: rank {key.destination} had received "
            f"{early_ns[worst] / 1e6:.1f} ms before rank {key.source} began to send, at position "
            f"{worst}"
        )
    between_ns = np.abs(end[key.source] - (end[key.destination] - late))
    together = between_ns <= CLOCK_TOLERANCE_NS
    if paired.proof == Proof.LENGTHS and together.mean() < MOSTLY_TOGETHER:
        return Refused(reason=_REPEATS)
    if (MOSTLY_TOGETHER if known else 0) <= together.mean() < 1:
        worst = int(np.argmax(between_ns))
        return Refused(
            reason=f"the order agrees but the times cannot: the transfers between rank "
            f"{key.source} and rank {key.destination} end on both sides at once, but at position "
            f"{worst} {between_ns[worst] / 1e6:.1f} ms apart"
        )
    return None
