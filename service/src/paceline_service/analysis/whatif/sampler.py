"""Replays a bounded sample of a job's steps as they come (docs/math/whatif.md)."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.channel import JudgedStep
from paceline_service.analysis.evidence.stages import Places
from paceline_service.analysis.whatif.costs import WhatIf, what_if
from paceline_service.analysis.whatif.graph import Graph, graph_of, joined_graphs

BATCH_STEPS = 32
"""Steps replayed together: their means are the ideal, and the cost per step falls."""
BATCH_POINTS = 200_000
SPARSE_BATCH_POINTS = 50_000
"""Later on a batch takes many steps to fill, and what is new is to be seen soon."""
MAX_STEP_POINTS = 100_000
"""A step of more points is not replayed: it would cost more than the rest of the analysis."""
DENSE_POINTS = 250_000
SPARSE_STRIDE = 16
"""All steps are replayed until they come to so many points, afterwards one of so many: the
figures are means, and by then a further step changes them little."""


class WhatIfSampler:
    """Adds up what-if figures; which steps it takes depends on the steps alone.

    Args:
        world_size: R.
    """

    def __init__(self, world_size: int) -> None:
        self._places = Places(
            stage=np.full(world_size, -1, dtype=np.int64),
            replica=np.full(world_size, -1, dtype=np.int64),
        )
        self._sums: WhatIf | None = None
        self._before: WhatIf | None = None
        self._waiting: list[Graph] = []
        self._points = 0
        self._seen = 0
        self._answer: tuple[int, WhatIf | None] = (-1, None)
        """How many points it is of, and the figures of those."""
        self.too_large = 0
        """Steps that were left out because of their size."""

    def see(self, step: JudgedStep, places: Places | None) -> None:
        """Take the next step; new ``places`` make the figures begin anew."""
        if places is not None and places is not self._places:
            self._places, self._sums, self._before, self._waiting = places, None, None, []
            self._points, self._seen, self._answer = 0, 0, (-1, None)
        self._seen += 1
        dense = self._dense
        if not dense and self._seen % SPARSE_STRIDE:
            return
        if 2 * len(step.matches.rows) > MAX_STEP_POINTS:
            self.too_large += 1
            return
        graph = graph_of(step)
        if graph is None:
            return
        most = BATCH_POINTS if dense else SPARSE_BATCH_POINTS
        if self._waiting and _points(self._waiting) + len(graph) > most:
            self.flush()
        self._waiting.append(graph)
        self._points += len(graph)
        if len(self._waiting) == BATCH_STEPS or (dense and not self._dense):
            self.flush()

    def figures(self) -> WhatIf | None:
        """Return the sums over the replayed steps; None when there are none.

        While all steps are replayed, those of a batch count when it is whole: asked after every
        step, it would be replayed every time. Of the first batch 1, 2, 4, ... steps count.
        """
        chosen = self._waiting
        if self._dense:
            if self._sums is not None:
                return self._sums
            chosen = chosen[: 1 << len(chosen).bit_length() >> 1]
        points = self._points - _points(self._waiting[len(chosen) :])
        if self._answer[0] != points:
            self._answer = (points, self._with(chosen))
        return self._answer[1]

    def newest(self) -> WhatIf | None:
        """Return the sums over the newest replayed steps: one batch, and what waits."""
        found = self.figures()
        return found - self._before if found is not None and self._before is not None else found

    def flush(self) -> None:
        """Let the steps count that are waiting for others."""
        if self._waiting:
            self._before, self._sums = self._sums, self._with(self._waiting)
            self._waiting, self._answer = [], (-1, None)

    @property
    def _dense(self) -> bool:
        return self._points <= DENSE_POINTS

    def _with(self, graphs: list[Graph]) -> WhatIf | None:
        if not graphs:
            return self._sums
        together = what_if(joined_graphs(graphs), self._places, self._sums)
        if together is not None:
            return together
        # A step that contradicts itself is left out, the others count.
        sums = self._sums
        for graph in graphs:
            sums = what_if(graph, self._places, sums) or sums
        return sums


def _points(graphs: list[Graph]) -> int:
    return sum(len(graph) for graph in graphs)
