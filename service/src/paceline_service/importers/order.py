"""Mends the rows of one rank that do not come in order: repeated ones go, steps ascend."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paceline.event_log import ROW_FIELDS
from paceline.vocabulary import P2P_OPS, Flag, RecordKind
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.spool import FILE_COLUMN, LINE_COLUMN

_P2P = frozenset(int(op) for op in P2P_OPS)
_STEP = ROW_FIELDS.index("step")
_END = ROW_FIELDS.index("end_ns")
_FLAGS = ROW_FIELDS.index("flags")

Report = Callable[[str, int, int, str], None]
"""reason, number of the file, line, message."""


class OrderWatch:
    """Tells while rows come in which ranks need mending; cheap, and never wrong to say yes.

    In an ordered log the counter of a group only rises, and so does the start of a phase. Only
    a rank where one did not can hold a row twice.
    """

    def __init__(self) -> None:
        self.unordered: set[int] = set()
        self.scattered: set[int] = set()
        """Ranks whose steps went back."""
        self._last: dict[tuple[int, ...], int] = {}
        self._step: dict[int, int] = {}

    def see(self, rank: int, row: tuple[int, ...]) -> None:
        """Take note of one row (group resolved)."""
        kind, code, group, seq, step, peer = row[:6]
        if kind == RecordKind.COLLECTIVE:
            key, value = _identity_group(rank, code, group, peer), seq
        elif kind == RecordKind.PHASE:
            key, value = (rank, kind, code, _on_device(row)), row[7]
        else:
            key, value = (rank, kind, _on_device(row)), step
        if self._last.get(key, -1) >= value:
            self.unordered.add(rank)
        self._last[key] = value
        newest = self._step.get(rank, -1)
        if step < newest:
            self.scattered.add(rank)
        else:
            self._step[rank] = step


def mended(table: Int64Array, *, by_step: bool, report: Report) -> Int64Array:
    """Return the rows of one rank without repetitions, their order kept.

    Of a row that comes twice the first is kept, but a finished collective goes before a pending
    one. ``by_step`` also brings the steps into ascending order (stable).

    Args:
        table: shape (N, WIDTH) as in the spool.
        by_step: whether to order by step.
        report: told of each row that is left out.
    """
    first: dict[tuple[int, ...], int] = {}
    keep = np.ones(len(table), dtype=np.bool_)
    for index, row in enumerate(table.tolist()):
        key = _identity(row)
        other = first.setdefault(key, index)
        if other == index:
            continue
        kept = table[other]
        if kept[_END] == 0 and row[_END]:
            first[key] = index
            keep[other] = False
            continue
        keep[index] = False
        if row[:FILE_COLUMN] == kept[:FILE_COLUMN].tolist() or not row[_END]:
            message = f"the same record is on line {kept[LINE_COLUMN]}; it counts once"
            report("duplicate", row[FILE_COLUMN], row[LINE_COLUMN], message)
        else:
            message = f"contradicts line {kept[LINE_COLUMN]}, which has the same identity"
            report("contradiction", row[FILE_COLUMN], row[LINE_COLUMN], message)
    table = table[keep]
    return table[np.argsort(table[:, _STEP], kind="stable")] if by_step else table


def _identity(row: list[int]) -> tuple[int, ...]:
    kind, code, group, seq, step, peer = row[:6]
    if kind == RecordKind.COLLECTIVE:
        return (*_identity_group(kind, code, group, peer), seq)
    if kind == RecordKind.PHASE:
        return (kind, code, step, row[7], _on_device(row))
    return (kind, step, _on_device(row))


def _on_device(row: Sequence[int]) -> bool:
    """Whether a phase or step is the device's: it stands beside the host's of the same step."""
    return bool(row[_FLAGS] & Flag.GPU_TIME)


def _identity_group(first: int, code: int, group: int, peer: int) -> tuple[int, ...]:
    return (first, group, code, peer) if code in _P2P else (first, group, -1, -1)
