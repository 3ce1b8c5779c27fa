"""Evidence against whole nodes: their ranks pooled (docs/math/evidence.md)."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.evidence.edetector import EDetector
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array

LEAST_NODES = 4
"""Nodes below which their order says too little; their ranks are tested one by one anyway."""
LEAST_RANKS = 2


class NodeEvidence:
    """Bets on where a node stands among all nodes by the mean normal score of its ranks.

    Nodes are compared with nodes, not ranks with ranks: what the ranks of a node share (a busy
    host) would else count once for each of them. Eight ranks that are slow together stand
    sqrt(8) times as far apart as one does.
    """

    def __init__(self, world_size: int) -> None:
        self._node = np.full(world_size, -1, dtype=np.int64)
        self._names: dict[str, int] = {}
        self.detector = EDetector(0)
        self._plan: PeerPlan | None = None

    def declare(self, rank: int, node: str) -> None:
        """Say where ``rank`` runs."""
        number = self._names.setdefault(node, len(self._names))
        if self._node[rank] != number:
            self._node[rank] = number
            self._plan = None

    @property
    def tests(self) -> int:
        """How many nodes are tested; 0 when there are too few to compare."""
        return len(self._names) if len(self._names) >= LEAST_NODES else 0

    def ranks_of(self, node: int) -> Int64Array:
        """Return the ranks of a node by its number."""
        return np.flatnonzero(self._node == node)

    def see(
        self, ranks: Int64Array, scores: FloatArray, busy: BoolArray, factor: FloatArray
    ) -> None:
        """Take one step's normal scores (n,) of ``ranks`` (n,); ``busy`` ones do not count.

        ``factor`` (R,) is what each rank's doubtful offset takes off a bet.
        """
        nodes = self.tests
        if not nodes:
            return
        if self._plan is None:
            self._plan = PeerPlan([np.arange(nodes)], nodes)
            self.detector = EDetector(nodes)
        node = self._node[ranks]
        keep = (node >= 0) & ~busy[ranks]
        if not keep.all():
            ranks, node, scores = ranks[keep], node[keep], scores[keep]
        count = np.bincount(node, minlength=nodes)
        total = np.bincount(node, weights=scores, minlength=nodes)
        worst = np.ones(nodes)
        np.minimum.at(worst, node, factor[ranks])
        enough = count >= LEAST_RANKS
        value = np.where(enough, total / np.sqrt(np.maximum(count, 1)), np.nan)
        placed = self._plan.place(value)
        weights, _ = placed.bets()
        self.detector.bet(placed.ranks, weights * worst[placed.ranks, None])
