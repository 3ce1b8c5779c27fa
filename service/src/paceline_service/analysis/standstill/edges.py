"""Who waits for whom: ranks, and the points at which somebody is missing."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import BoolArray, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """A graph of ranks and nodes; a node is a collective that somebody is missing in.

    Args:
        world_size: R.
        nodes: how many nodes there are.
        waiter_row: (W,) the pending row by which ``waiter_rank`` waits in ``waiter_node``.
        waiter_rank: (W,)
        waiter_node: (W,)
        missing_rank: (M,) ranks that are missing in ``missing_node``.
        missing_node: (M,)
        old_row: which pending rows are old enough to accuse somebody.
    """

    world_size: int
    nodes: int
    waiter_row: Int64Array
    waiter_rank: Int64Array
    waiter_node: Int64Array
    missing_rank: Int64Array
    missing_node: Int64Array
    old_row: BoolArray

    def targets(self) -> BoolArray:
        """Return (R,): which ranks somebody waits for."""
        return self._ranks(self.missing_rank)

    def waits(self) -> BoolArray:
        """Return (R,): which ranks wait for somebody."""
        return self._ranks(self.waiter_rank)

    def targets_of_old(self) -> BoolArray:
        """Return (R,): which ranks somebody has waited for long enough."""
        old = np.zeros(self.nodes, dtype=np.bool_)
        old[self.waiter_node[self.old_row[self.waiter_row]]] = True
        return self._ranks(self.missing_rank[old[self.missing_node]])

    def _ranks(self, ranks: Int64Array) -> BoolArray:
        out = np.zeros(self.world_size, dtype=np.bool_)
        out[ranks] = True
        return out


def explained_by(edges: Edges, ranks: BoolArray) -> BoolArray:
    """Return (R,): the given ranks and all that wait for them, directly or through others."""
    reached = ranks.copy()
    while True:
        nodes = np.zeros(edges.nodes, dtype=np.bool_)
        nodes[edges.missing_node[reached[edges.missing_rank]]] = True
        grown = reached.copy()
        grown[edges.waiter_rank[nodes[edges.waiter_node]]] = True
        if (grown == reached).all():
            return reached
        reached = grown


def mutual(edges: Edges, explained: BoolArray) -> BoolArray:
    """Return (R,): ranks that wait for each other in a circle, of those not ``explained``."""
    core = edges.waits() & edges.targets() & ~explained
    while core.any():
        awaited = np.zeros(edges.nodes, dtype=np.bool_)
        awaited[edges.waiter_node[core[edges.waiter_rank]]] = True
        wanted = np.zeros(edges.world_size, dtype=np.bool_)
        wanted[edges.missing_rank[awaited[edges.missing_node]]] = True
        lacking = np.zeros(edges.nodes, dtype=np.bool_)
        lacking[edges.missing_node[core[edges.missing_rank]]] = True
        waits = np.zeros(edges.world_size, dtype=np.bool_)
        waits[edges.waiter_rank[lacking[edges.waiter_node]]] = True
        smaller = core & wanted & waits
        if (smaller == core).all():
            return core
        core = smaller
    return core
