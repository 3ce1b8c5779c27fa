"""Collectives that every member has entered and nobody leaves: the transfer itself stands still."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import P2P_OPS
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import one_of
from paceline_service.analysis.standstill.edges import Edges
from paceline_service.analysis.standstill.waiting import Waiting

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


def stuck_rows(
    waiting: Waiting, members: list[Int64Array], old: BoolArray, edges: Edges
) -> Int64Array:
    """Return the pending rows of collectives that stand still although nobody is missing.

    In such a collective every member has been for the threshold, and none of them waits for
    anybody elsewhere: an operation that was issued ahead, by ranks that now wait for a rank that
    came no further, is one that nobody asked about since.

    Args:
        waiting: what is pending.
        members: ranks of each group.
        old: which rows are old enough to accuse somebody.
        edges: who waits for whom.

    Returns:
        Rows of ``waiting``; none where the threshold is 0, because then no age is known.
    """
    rows = np.flatnonzero(old & (waiting.age_ns > 0) & ~one_of(waiting.op, _P2P))
    if not len(rows):
        return rows
    instances = np.stack([waiting.group[rows], waiting.seq[rows]], axis=1)
    kinds, which = np.unique(instances, axis=0, return_inverse=True)
    which = which.ravel()
    elsewhere = np.bincount(which, edges.waits()[waiting.rank[rows]], minlength=len(kinds)) > 0
    there = np.bincount(which, minlength=len(kinds))
    sizes = np.array([
        len(members[group]) if 0 <= group < len(members) else 0 for group in kinds[:, 0].tolist()
    ])  # fmt: skip
    stands: BoolArray = ((there == sizes) & (sizes > 1) & ~elsewhere)[which]
    return rows[stands]
