"""Which records of different ranks are one collective (docs/math/matching.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import P2P_OPS, Op
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.table import Table

_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """N collective records in instance order, and I instances.

    Attributes:
        rows: the records, (N,), those of one instance together.
        instance: (N,) instance of each row.
        first: (I,) first row of each instance.
        complete: (I,) every member is there once, and all name the same operation.
        duplicates: records dropped because their rank had already reported the instance.
        incomplete: instances with missing members.
        mismatched: instances whose members name different operations.
    """

    rows: Table
    instance: NDArray[np.intp]
    first: NDArray[np.intp]
    complete: BoolArray
    duplicates: int
    incomplete: int
    mismatched: int


def match(collectives: Table, group_sizes: Int64Array) -> Matches:
    """Join the collective records of one step across ranks.

    The key is (group, seq); for send and recv (group, source, destination, seq). Nothing
    is ever paired by time or by order alone.

    Args:
        collectives: records of kind COLLECTIVE, any order.
        group_sizes: (G,) members of each group.

    Returns:
        The instances. Incomplete and mismatched ones are kept, marked, and used for
        nobody's blame.
    """
    p2p = np.isin(collectives.code, _P2P)
    sends = collectives.code == Op.SEND
    source = np.where(p2p, np.where(sends, collectives.rank, collectives.peer), -1)
    destination = np.where(p2p, np.where(sends, collectives.peer, collectives.rank), -1)
    order = np.lexsort((collectives.rank, collectives.seq, destination, source, collectives.group))
    rows = collectives.take(order)
    keys = (rows.group, source[order], destination[order], rows.seq)
    new = np.ones(len(rows), dtype=np.bool_)
    if len(rows) > 1:
        new[1:] = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
        again = np.zeros(len(rows), dtype=np.bool_)
        again[1:] = ~new[1:] & (rows.rank[1:] == rows.rank[:-1])
        if again.any():
            rows, new = rows.take(~again), new[~again]
        duplicates = int(again.sum())
    else:
        duplicates = 0
    first = np.flatnonzero(new)
    instance = np.cumsum(new) - 1
    if not len(first):
        empty = np.zeros(0, dtype=np.bool_)
        return Matches(rows=rows, instance=instance, first=first, complete=empty,
                       duplicates=duplicates, incomplete=0, mismatched=0)  # fmt: skip
    count = np.diff(np.append(first, len(rows)))
    pair = np.isin(rows.code[first], _P2P)
    expected = np.where(pair, 2, group_sizes[rows.group[first]])
    lowest = np.minimum.reduceat(rows.code, first)
    highest = np.maximum.reduceat(rows.code, first)
    same_op = (lowest == highest) | (pair & (lowest == Op.SEND) & (highest == Op.RECV))
    whole = count == expected
    return Matches(
        rows=rows,
        instance=instance,
        first=first,
        complete=whole & same_op,
        duplicates=duplicates,
        incomplete=int((~whole).sum()),
        mismatched=int((~same_op).sum()),
    )
