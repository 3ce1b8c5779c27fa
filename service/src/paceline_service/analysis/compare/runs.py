"""What differs between two runs: their step time, its parts, their ranks (docs/math/compare.md)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.compare.change import Change, change, significant
from paceline_service.analysis.compare.figures import RunFigures
from paceline_service.analysis.records import FloatArray

TOLERANCE = 0.005
"""A difference that is smaller counts for nothing, as a finding that costs less does."""
LEAST_PEERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepChange:
    """The step time of both runs; ratios are after over before, less 1."""

    before_ns: float
    after_ns: float
    ratio: float
    low_ratio: float | None
    high_ratio: float | None
    smallest_ratio: float | None
    p_value: float | None
    verdict: str
    """``slower``, ``faster``, ``no_difference`` or ``insufficient_evidence``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartChange:
    """One part of the mean step, ns; ``holds`` where chance does not explain the difference."""

    part: int
    before_ns: float
    after_ns: float
    change: Change | None
    holds: bool

    @property
    def difference_ns(self) -> float:
        """After less before."""
        return self.after_ns - self.before_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class RankChange:
    """Own work of one rank, ns a step.

    ``against_peers_ratio`` is by how much it changed more than the median rank; ``verdict`` is
    ``slower`` or ``faster`` where it did so by itself, else empty.
    """

    rank: int
    before_ns: float
    after_ns: float
    ratio: float
    against_peers_ratio: float | None
    p_value: float | None
    verdict: str
    changed: bool
    """Whether its own work differs at all, be it with that of all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChange:
    """The whole comparison; ``ranks`` is empty where those of the runs are not the same."""

    step: StepChange
    parts: list[PartChange]
    ranks: list[RankChange]


def compare_runs(
    before: RunFigures, after: RunFigures, *, same_ranks: bool, tolerance: float = TOLERANCE
) -> RunChange:
    """Compare two runs.

    Args:
        before: batches of the one.
        after: batches of the other.
        same_ranks: whether rank r of one is rank r of the other.
        tolerance: differences of the step time and of own work that are smaller do not count.
    """
    return RunChange(
        step=_step_change(before, after, tolerance),
        parts=_part_changes(before, after),
        ranks=_rank_changes(before, after, tolerance) if same_ranks else [],
    )


def _step_change(before: RunFigures, after: RunFigures, tolerance: float) -> StepChange:
    one, two = _level(before.duration_ns), _level(after.duration_ns)
    found = change(_logs(before.duration_ns), _logs(after.duration_ns))
    if found is None:
        return StepChange(
            before_ns=one, after_ns=two, ratio=two / one - 1 if one > 0 else 0.0, low_ratio=None,
            high_ratio=None, smallest_ratio=None, p_value=None, verdict="insufficient_evidence",
        )  # fmt: skip
    ratio = float(np.expm1(found.difference))
    verdict = "no_difference"
    if significant([found.p_value])[0] and abs(ratio) >= tolerance:
        verdict = "slower" if ratio > 0 else "faster"
    return StepChange(
        before_ns=one,
        after_ns=two,
        ratio=ratio,
        low_ratio=float(np.expm1(found.difference - found.half)),
        high_ratio=float(np.expm1(found.difference + found.half)),
        smallest_ratio=max(float(np.expm1(found.smallest)), tolerance),
        p_value=found.p_value,
        verdict=verdict,
    )


def _part_changes(before: RunFigures, after: RunFigures) -> list[PartChange]:
    one, two = (run.part_ns[~np.isnan(run.part_ns).any(axis=1)] for run in (before, after))
    if not len(one) or not len(two):
        return []
    found = [change(one[:, part], two[:, part], merge=True) for part in range(one.shape[1])]
    # A part that neither run has is no test.
    there = [bool(one[:, part].any() or two[:, part].any()) for part in range(one.shape[1])]
    held = significant([c.p_value if c and t else None for c, t in zip(found, there, strict=True)])
    return [
        PartChange(
            part=part, before_ns=float(one[:, part].mean()), after_ns=float(two[:, part].mean()),
            change=found[part], holds=held[part],
        )
        for part in range(one.shape[1])
        if there[part]
    ]  # fmt: skip


def _rank_changes(before: RunFigures, after: RunFigures, tolerance: float) -> list[RankChange]:
    one, two = _logs(before.self_ns), _logs(after.self_ns)
    if not one.size or one.shape[1] != two.shape[1]:
        return []
    known = np.flatnonzero(~np.isnan(one).all(axis=0) & ~np.isnan(two).all(axis=0))
    apart = [_apart(one, known), _apart(two, known)] if len(known) >= LEAST_PEERS else None
    alone = [change(one[:, rank], two[:, rank], merge=True) for rank in known]
    among = [
        change(apart[0][:, n], apart[1][:, n], merge=True) if apart else None
        for n in range(len(known))
    ]
    held_alone = significant([c.p_value if c else None for c in alone])
    held_among = significant([c.p_value if c else None for c in among])
    # The median of two moves by half of what one of them does.
    share = 2 if len(known) == LEAST_PEERS else 1
    rows = []
    for place, rank in enumerate(known.tolist()):
        ratio = float(np.expm1(np.nanmean(two[:, rank]) - np.nanmean(one[:, rank])))
        peers = among[place]
        against = float(np.expm1(peers.difference)) if peers is not None else None
        verdict = ""
        # Who only lags behind what the others gained did not change.
        if held_alone[place] and held_among[place] and against is not None:
            if min(ratio, against * share) >= tolerance:
                verdict = "slower"
            elif max(ratio, against * share) <= -tolerance:
                verdict = "faster"
        rows.append(
            RankChange(
                rank=rank, before_ns=_level(before.self_ns[:, rank]),
                after_ns=_level(after.self_ns[:, rank]), ratio=ratio, against_peers_ratio=against,
                p_value=peers.p_value if peers is not None else None, verdict=verdict,
                changed=held_alone[place] and abs(ratio) >= tolerance,
            )
        )  # fmt: skip
    return rows


def _apart(
    logs: FloatArray, known: Sequence[int] | np.ndarray[tuple[int], np.dtype[np.intp]]
) -> FloatArray:
    """Return (B, K) how far each rank lies from the median rank of its batch."""
    chosen = logs[:, known]
    return np.asarray(chosen - np.array([_middle(row) for row in chosen])[:, None])


def _middle(row: FloatArray) -> float:
    known = row[~np.isnan(row)]
    return float(np.median(known)) if known.size else float("nan")


def _logs(values: FloatArray) -> FloatArray:
    return np.log(np.where(values > 0, values, np.nan))


def _level(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(np.exp(np.log(known[known > 0]).mean())) if (known > 0).any() else 0.0
