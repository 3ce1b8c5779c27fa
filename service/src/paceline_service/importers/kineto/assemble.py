"""Pieces of a trace file become one ``Trace``."""

from __future__ import annotations

from itertools import compress
from pathlib import Path

import numpy as np

from paceline.counted import counted
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import piece as pieces
from paceline_service.importers.kineto.args import Args
from paceline_service.importers.kineto.piece import WIDTHS, Piece, Told
from paceline_service.importers.kineto.trace import COMMUNICATION, MAX_NS, Trace, take_metadata

_MAX_US = MAX_NS / 1000
_MAX_EXACT = 1 << 53
"""Whole numbers up to it are exact as doubles."""
_COUNTED = (pieces.GPU, pieces.LAUNCHES, pieces.CALLS, pieces.HOST, pieces.STEPS, pieces.PHASES,
            pieces.OTHERS)  # fmt: skip


class Assembly:
    """Takes the pieces of one file in its order."""

    def __init__(self, path: Path) -> None:
        self.trace = Trace(path=path)
        self._odd_times = 0
        self._faults: list[tuple[str, str, int]] = []

    def add(self, piece: Piece) -> None:
        """Take a piece."""
        self._odd_times += piece.odd_times
        self._faults += piece.faults
        if piece.metadata is not None:
            self.trace.whole = piece.whole
            take_metadata(self.trace, piece.metadata)
            return
        found = _rows_of(piece)
        for table in _COUNTED:
            self._count(found[table])
        self._take_gpu(found[pieces.GPU], piece)
        self._take_host(found, piece)

    def tell(self, faults: Faults) -> None:
        """Tell what was wrong with the file."""
        for reason, message, count in self._faults:
            faults.add(reason, self.trace.path, None, message, count=count)
        if self._odd_times:
            message = f"left out: {counted(self._odd_times, 'event')} without a usable time"
            faults.add("invalid", self.trace.path, None, message)

    def _count(self, rows: _Rows) -> None:
        if not len(rows.usable):
            return
        usable = int(np.count_nonzero(rows.usable))
        self._odd_times += len(rows.usable) - usable
        if usable:
            trace = self.trace
            trace.events += usable
            trace.first_ns = min(trace.first_ns, int(rows.start[rows.usable].min()))
            trace.last_ns = max(trace.last_ns, int(rows.end[rows.usable].max()))

    def _take_gpu(self, rows: _Rows, piece: Piece) -> None:
        trace, usable = self.trace, rows.usable
        kind, correlation, stream = rows.whole(2), rows.whole(3), rows.whole(4)
        talks = kind == COMMUNICATION
        trace.activities.extend(_table(usable, rows.start, rows.end, kind, correlation))
        trace.kernels.extend(_table(talks & usable, rows.start, rows.end, correlation, stream))
        trace.compute_streams |= piece.compute_streams
        for name, count in piece.suspects.items():
            trace.suspects[name] += count
        trace.kernel_names += compress(piece.kernel_names, usable[talks])
        trace.kernel_args += map(_args, compress(piece.kernel_args, usable[talks]))

    def _take_host(self, found: list[_Rows], piece: Piece) -> None:
        trace = self.trace
        rows = found[pieces.LAUNCHES]
        correlation = rows.whole(2)
        kept = rows.usable & (correlation >= 0)
        trace.launches.extend(_table(kept, correlation, rows.start, rows.end, rows.whole(3)))
        rows = found[pieces.CALLS]
        trace.calls.extend(_table(rows.usable, rows.start, rows.end, rows.whole(2)))
        trace.call_names += compress(piece.call_names, rows.usable)
        trace.call_args += map(_args, compress(piece.call_args, rows.usable))
        for table, columns in ((pieces.HOST, trace.host), (pieces.BACKWARD, trace.backward)):
            rows = found[table]
            columns.extend(_table(rows.usable, rows.start, rows.end))
        for table, columns in ((pieces.STEPS, trace.steps), (pieces.PHASES, trace.phases)):
            rows = found[table]
            columns.extend(_table(rows.usable, rows.whole(2), rows.start, rows.end))


def _args(told: Told | None) -> Args | None:
    return None if told is None else Args(*told)


def _rows_of(piece: Piece) -> list[_Rows]:
    """Return the tables of a piece; their times are converted together, as most are short."""
    columns: list[FloatArray] = [
        np.frombuffer(raw, dtype=np.float64).reshape(width, -1)
        for raw, width in zip(piece.tables, WIDTHS, strict=True)
    ]
    start_us = np.concatenate([table[0] for table in columns])
    length_us = np.concatenate([table[1] for table in columns])
    usable = (start_us >= 0) & (start_us < _MAX_US) & (length_us >= 0) & (length_us < _MAX_US)
    if not usable.all():
        start_us, length_us = (np.where(usable, of, 0.0) for of in (start_us, length_us))
    # Time 0 means unknown inside, and a clock may begin there.
    start = _ns(start_us) + 1
    end = start + _ns(length_us)
    found, at = [], 0
    for table in columns:
        mine = slice(at, at := at + table.shape[1])
        found.append(_Rows(table, usable[mine], start[mine], end[mine]))
    return found


class _Rows:
    """N rows of a table of a piece: start and end in ns, and which of them have usable times."""

    def __init__(
        self, columns: FloatArray, usable: BoolArray, start: Int64Array, end: Int64Array
    ) -> None:
        self._columns = columns
        self.usable, self.start, self.end = usable, start, end

    def whole(self, column: int) -> Int64Array:
        """Return a column of whole numbers, -1 where it has another."""
        values = self._columns[column]
        usable = (values >= 0) & (values < _MAX_EXACT)
        return np.where(usable, values, -1).astype(np.int64)


def _ns(microseconds: FloatArray) -> Int64Array:
    """Return times in ns; one that is given as a fraction since 1970 is exact to 0.25 us."""
    whole = np.floor(microseconds)
    ns: Int64Array = whole.astype(np.int64) * 1000
    return ns + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _table(kept: BoolArray, *columns: Int64Array) -> Int64Array:
    table = np.stack(columns, axis=1)
    return table if kept.all() else table[kept]
