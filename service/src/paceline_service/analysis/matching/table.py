"""Records of many ranks in one table."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import COLUMNS, BoolArray, Columns, Int64Array, Records

MANY_ROWS = 1 << 16
"""A column of more than these does not lie in the cache of a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table(Columns):
    """Records of many ranks, with the rank of each, (N,)."""

    rank: Int64Array

    def take(self, index: NDArray[np.intp] | BoolArray | slice) -> Table:
        """Return the rows that ``index`` selects."""
        if isinstance(index, slice):
            return Table(**{name: getattr(self, name)[index] for name in TABLE_COLUMNS})
        rows = np.flatnonzero(index) if index.dtype == np.bool_ else np.asarray(index, np.intp)
        return Table(**{name: _chosen(getattr(self, name), rows) for name in TABLE_COLUMNS})

    def copy(self) -> Table:
        """Return the rows with memory of their own."""
        return Table(**{name: getattr(self, name).copy() for name in TABLE_COLUMNS})


TABLE_COLUMNS = ("rank", *COLUMNS)


def stack(parts: list[Table]) -> Table:
    """Return tables one under the other."""
    return Table(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in TABLE_COLUMNS})


def runs_of_ranks(table: Table) -> list[Records]:
    """Return the rows cut where the rank changes."""
    if not len(table):
        return []
    cuts = (np.flatnonzero(table.rank[1:] != table.rank[:-1]) + 1).tolist()
    return [
        Records(
            rank=int(table.rank[low]), **{name: getattr(table, name)[low:high] for name in COLUMNS}
        )
        for low, high in zip([0, *cuts], [*cuts, len(table)], strict=True)
    ]


def as_table(records: Records) -> Table:
    """Return records of one rank as a table."""
    rank = np.full(len(records), records.rank, dtype=np.int64)
    return Table(rank=rank, **{name: getattr(records, name) for name in COLUMNS})


def _chosen(column: Int64Array, index: NDArray[np.intp]) -> Int64Array:
    """Return the values at ``index``; a column of one value needs no looking up, which is slow."""
    if len(column) > MANY_ROWS:
        first = column[0]
        if first == column[len(column) // 2] == column[-1] and (column == first).all():
            return np.full(len(index), first)
    return column[index]
