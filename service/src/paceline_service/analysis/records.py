"""What the analysis is given: the records of ranks as columns, and the job's topology."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass

Int64Array = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Columns of N records, each int64 of shape (N,); times are ns on the clock of their rank.

    ``kind``, ``code`` and ``flags`` hold the numbers of ``paceline.vocabulary``; ``group`` is
    the job's own index (``JobAnalysis.declare_group``); ``peer`` is the global rank of the root
    or peer, or -1. A time of 0 is unknown. Records of a rank come in the order they were written.
    """

    kind: Int64Array
    code: Int64Array
    group: Int64Array
    seq: Int64Array
    step: Int64Array
    peer: Int64Array
    payload_bytes: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    join_ns: Int64Array
    issue_ns: Int64Array
    flags: Int64Array

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.kind)


COLUMNS = tuple(field.name for field in fields(Columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Records(Columns):
    """Records of one rank."""

    rank: int

    def take(self, index: NDArray[np.intp] | BoolArray | slice) -> Records:
        """Return the records that ``index`` selects."""
        columns = {name: getattr(self, name)[index] for name in COLUMNS}
        return Records(rank=self.rank, **columns)


def records_from_rows(rank: int, rows: Iterable[tuple[int, ...]]) -> Records:
    """Return rows in the order of ``COLUMNS`` as records of ``rank``."""
    table = np.array(list(rows), dtype=np.int64).reshape(-1, len(COLUMNS))
    return Records(rank=rank, **{name: table[:, i].copy() for i, name in enumerate(COLUMNS)})


def concatenate(parts: list[Records]) -> Records:
    """Return the records of one rank, given in pieces, as one."""
    columns = {name: np.concatenate([getattr(p, name) for p in parts]) for name in COLUMNS}
    return Records(rank=parts[0].rank, **columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A process group: ``ranks`` are global, in group order; ``epoch`` counts its re-makings."""

    name: str
    ranks: tuple[int, ...]
    epoch: int = 0
    mesh_dim: str = ""
