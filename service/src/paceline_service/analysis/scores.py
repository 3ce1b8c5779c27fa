"""How slow each rank is against its peers in one step, as one number (docs/math/evidence.md)."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.records import FloatArray, Int64Array

MAD_TO_SD = 1.4826
_LEAST_SELF_NS = 1_000.0


def lateness_scores(self_ns: Int64Array, peer_groups: list[Int64Array]) -> FloatArray:
    """Return log self time minus the median of the other peers' (natural log), (R,).

    A score of 0.04 means four percent slower than the peers. What all peers share (longer
    sequences, a slow step) cancels.

    Args:
        self_ns: (R,), -1 where a rank has no data.
        peer_groups: ranks that may be compared.

    Returns:
        Scores; NaN for ranks without data or without peers.
    """
    scores = np.full(len(self_ns), np.nan)
    for peers in peer_groups:
        here = peers[self_ns[peers] >= 0]
        if len(here) < 2:
            continue
        logs = np.log(np.maximum(self_ns[here], _LEAST_SELF_NS))
        scores[here] = logs - median_of_others(logs)
    return scores


def relative_logs(self_ns: Int64Array, peer_groups: list[Int64Array]) -> FloatArray:
    """Return log self time minus the median over all peers, (R,), NaN where unknown.

    One number is taken from all peers of a step, so their order, which is what the evidence
    bets on, stays exactly as it was; ``lateness_scores`` measures, this one ranks.
    """
    logs = np.full(len(self_ns), np.nan)
    for peers in peer_groups:
        here = peers[self_ns[peers] >= 0]
        if len(here) > 1:
            values = np.log(np.maximum(self_ns[here], _LEAST_SELF_NS))
            logs[here] = values - np.median(values)
    return logs


def median_of_others(values: FloatArray) -> FloatArray:
    """Return, for each of K >= 2 values, the median of the other K - 1; (K,).

    Raises:
        ValueError: K < 2; there are no others.
    """
    count = len(values)
    if count < 2:
        raise ValueError(f"{count} value has no others; at least 2 are needed")
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    place = np.empty(count, dtype=np.int64)
    place[order] = np.arange(count)
    others = count - 1
    low, high = (others - 1) // 2, others // 2
    # Without the value at `place`, all behind it move one to the left.
    lower = ordered[low + (place <= low)]
    upper = ordered[high + (place <= high)]
    return np.asarray((lower + upper) / 2)


def spread(values: FloatArray) -> float:
    """Return the standard deviation that the median absolute deviation implies; 0 when empty."""
    if not len(values):
        return 0.0
    return float(MAD_TO_SD * np.median(np.abs(values - np.median(values))))
