"""Evidence against whole nodes: their ranks pooled (docs/math/evidence.md)."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.evidence.edetector import EDetector
from paceline_service.analysis.evidence.places import PeerPlan, Placed
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct

LEAST_NODES = 4
"""Nodes below which their order says too little; their ranks are tested one by one anyway."""
LEAST_RANKS = 2


class NodeEvidence:
    """Bets on where a node stands among all nodes by the mean normal score of its ranks.

    Nodes are compared with nodes, not ranks with ranks: what the ranks of a node share (a busy
    host) would else count once for each of them. Eight ranks that are slow together stand
    sqrt(8) times as far apart as one does.

    The scores of a peer group sum to 0: the n of its K members that are on a node have a sum of
    variance n (1 - n/K). Nodes are compared in units of that, and one that holds its peer groups
    whole is not compared: its sum is 0 whatever its ranks do.
    """

    def __init__(self, world_size: int) -> None:
        self._node = np.full(world_size, -1, dtype=np.int64)
        self._names: dict[str, int] = {}
        self.detector = EDetector(0)
        self._plan: PeerPlan | None = None
        self._present = b""
        self._spread = np.zeros(0)
        """(nodes,) sd of the sum of each node's scores; NaN of a node that is not compared."""

    def declare(self, rank: int, node: str) -> None:
        """Say where ``rank`` runs."""
        number = self._names.setdefault(node, len(self._names))
        if self._node[rank] != number:
            self._node[rank] = number
            self._plan = None
            self._present = b""

    @property
    def tests(self) -> int:
        """How many nodes are tested; 0 when there are too few to compare."""
        return len(self._names) if len(self._names) >= LEAST_NODES else 0

    def ranks_of(self, node: int) -> Int64Array:
        """Return the ranks of a node by its number."""
        return np.flatnonzero(self._node == node)

    def see(self, among: Placed, scores: FloatArray, busy: BoolArray, factor: FloatArray) -> None:
        """Take one step's normal scores (n,) of the ranks ``among`` their peers.

        ``busy`` (R,) ones do not count; ``factor`` (R,) is what each rank's doubtful offset takes
        off a bet.
        """
        nodes = self.tests
        if not nodes:
            return
        if self._plan is None:
            self._plan = PeerPlan([np.arange(nodes)], nodes)
            self.detector = EDetector(nodes)
        ranks, group = among.ranks, among.layout.group
        node = self._node[ranks]
        keep = (node >= 0) & ~busy[ranks]
        if not keep.all():
            ranks, node, group, scores = ranks[keep], node[keep], group[keep], scores[keep]
        self._count(among, ranks, node, group)
        total = np.bincount(node, weights=scores, minlength=nodes)
        worst = np.ones(nodes)
        np.minimum.at(worst, node, factor[ranks])
        placed = self._plan.place(total / self._spread)
        weights, _ = placed.bets()
        self.detector.bet(placed.ranks, weights * worst[placed.ranks, None])

    def _count(self, among: Placed, ranks: Int64Array, node: Int64Array, group: Int64Array) -> None:
        """Note how far the sums of the nodes spread, where other ranks are there than before.

        Of the ranks ``among`` their peers those (n,) count that are on a known ``node`` (n,).
        """
        here = np.zeros(len(self._node), dtype=np.int8)
        here[among.ranks] = 1
        here[ranks] = 2
        present = here.tobytes()
        if present == self._present:
            return
        self._present = present
        nodes = self.tests
        pair = group * nodes + node
        pairs = distinct(pair)
        on_node = np.bincount(np.searchsorted(pairs, pair), minlength=len(pairs))
        of_group = np.bincount(among.layout.group)[pairs // nodes]
        variance = np.bincount(
            pairs % nodes, weights=on_node * (1 - on_node / of_group), minlength=nodes
        )
        enough = (np.bincount(node, minlength=nodes) >= LEAST_RANKS) & (variance > 0)
        self._spread = np.where(enough, np.sqrt(variance), np.nan)
