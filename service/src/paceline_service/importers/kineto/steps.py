"""Of which step a collective is, where the ranks of a window number their steps differently."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto.order import Paired
from paceline_service.importers.kineto.rank import RankTimeline
from paceline_service.importers.kineto.windows import Window


def step_shifts(window: Window, pairs: Sequence[Paired]) -> dict[int, int]:
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


def steps_of(
    paired: Paired, columns: Sequence[RankTimeline], numbers: dict[int, Int64Array]
) -> Int64Array:
    """Return (C,) the step of each collective: what its first member with one says."""
    step = np.full(len(paired.op), -1, dtype=np.int64)
    for i, (rank, timeline) in enumerate(zip(paired.members.tolist(), columns, strict=True)):
        index = timeline.call_step[paired.rows[:, i]]
        mine = np.where(index >= 0, numbers[rank][np.maximum(index, 0)], -1)
        step = np.where(step >= 0, step, mine)
    return step


def _numbers(timeline: RankTimeline, rows: Int64Array) -> Int64Array:
    step = timeline.call_step[rows]
    return np.where(step >= 0, timeline.steps[np.maximum(step, 0)], -1)
