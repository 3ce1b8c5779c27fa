"""Which ranks are which stage of a pipeline, by their sends and receives (docs/math/stages.md)."""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import P2P_OPS, Op
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import one_of

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where each of R ranks is in the pipeline; -1 where that is not known."""

    stage: Int64Array
    replica: Int64Array

    @property
    def stages(self) -> int:
        """Number of stages, 0 without a pipeline."""
        return int(self.stage.max(initial=-1)) + 1


def find_places(rows: Table, world_size: int) -> Places | None:
    """Return the stage and the replica of every rank, or None where this is no pipeline.

    A pipeline's first stage begins a step by sending, every other one by receiving from the
    stage before it. Followed back, the first receives lead each rank to a first stage: their
    number is its stage, and where they end its replica. Sends and receives that do not give
    every replica the same stages, one rank each, or go elsewhere than to the next stage, are of
    something else (a ring of attention, for example), and nothing is said.

    Args:
        rows: collective records of one step, any order.
        world_size: R.
    """
    chosen = np.flatnonzero(one_of(rows.code, _P2P) & (rows.peer >= 0))
    if not len(chosen):
        return None
    # A first stage may post the receive of the first backward together with its first send; a
    # ring posts both as well, and then all begin by sending.
    order = np.lexsort((rows.code[chosen] != Op.SEND, rows.start_ns[chosen], rows.rank[chosen]))
    chosen = chosen[order]
    ranks, first = np.unique(rows.rank[chosen], return_index=True)
    opening = chosen[first]
    begins = rows.code[opening] == Op.SEND
    if not begins.any() or begins.all():
        return None
    source = np.arange(world_size, dtype=np.int64)
    source[ranks] = np.where(begins, ranks, rows.peer[opening])
    if source.max() >= world_size:
        return None
    depth = (source != np.arange(world_size)).astype(np.int64)
    # Pointer doubling: after k rounds every rank knows who is 2^k transfers before it.
    for _ in range(int(world_size).bit_length()):
        depth, source = depth + depth[source], source[source]
    root = np.zeros(world_size, dtype=np.bool_)
    root[ranks[begins]] = True
    if not root[source[ranks]].all():
        return None  # a circle, or a chain that ends at a rank without transfers
    stage = np.full(world_size, -1, dtype=np.int64)
    replica = np.full(world_size, -1, dtype=np.int64)
    stage[ranks] = depth[ranks]
    replica[ranks] = np.unique(source[ranks], return_inverse=True)[1]
    stages, replicas = int(stage.max()) + 1, int(replica.max()) + 1
    held = np.bincount(replica[ranks] * stages + stage[ranks], minlength=stages * replicas)
    if stages < 2 or (held != 1).any():
        return None
    # Transfers go to the stage before or after; with several chunks on a rank also round the end.
    peer, own = rows.peer[chosen], rows.rank[chosen]
    apart = (stage[peer] - stage[own]) % stages
    if (replica[peer] != replica[own]).any() or not np.isin(apart, (1, stages - 1)).all():
        return None
    return Places(stage=stage, replica=replica)
