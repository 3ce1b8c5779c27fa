"""The batches of a run by which it is compared, from the steps that are kept of it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from paceline_service.analysis.compare.figures import (
    MOST_READ,
    PARTS,
    RunFigures,
    batch_edges,
    batch_figures,
)
from paceline_service.export.step_archive import StepArchive


def run_figures(steps: StepArchive, settling_steps: int) -> RunFigures:
    """Return the figures of a run without its settling steps, of which at most half are left out.

    Args:
        steps: of the run.
        settling_steps: how many are not judged at its beginning.
    """
    skipped = min(settling_steps, len(steps) // 2)
    edges = [skipped + edge for edge in batch_edges(len(steps) - skipped)]
    durations = np.array(steps.durations_ns, dtype=np.float64)
    levels, parts, own = [], [], []
    for first, last in pairwise(edges):
        levels.append(float(np.median(durations[first:last])))
        measured = [place for place in range(first, last) if steps.measured[place]]
        every = max(-(-len(measured) // MOST_READ), 1)
        chosen = measured[::every] or [first]
        part, mine = batch_figures([next(steps.per_rank(place, place + 1)) for place in chosen])
        parts.append(part)
        own.append(mine)
    return RunFigures(
        steps=edges[-1] - edges[0],
        duration_ns=np.array(levels),
        part_ns=np.array(parts) if parts else np.zeros((0, PARTS)),
        self_ns=np.array(own) if own else np.zeros((0, steps.world_size)),
    )
