"""Rows of many ranks on disk, given back rank by rank: memory stays bounded for any input.

An event log can come in any order: one file, all ranks mixed, or a file per rank, read one after
the other. The analysis wants all ranks to advance together. So rows are put here first.
"""

from __future__ import annotations

import io
from array import array
from collections.abc import Iterator
from typing import IO

import numpy as np

from paceline.dataclass import dataclass
from paceline.event_log import ROW_FIELDS
from paceline_service.analysis.records import Int64Array

WIDTH = len(ROW_FIELDS) + 2
"""The row, then the number of its file and of its line: faults found later name their place."""
FILE_COLUMN, LINE_COLUMN = WIDTH - 2, WIDTH - 1
ROWS_PER_CHUNK = 512
MAX_BUFFERED_ROWS = 1 << 18
MAX_MEMORY_BYTES = 64 << 20
"""Beyond it the spool is a temporary file, which has no name and goes with the process."""
_STEP_COLUMN = ROW_FIELDS.index("step")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some consecutive rows of one rank in the spool."""

    offset: int
    rows: int
    first_step: int


class RowSpool:
    """Keeps rows by rank, in the order in which they were appended."""

    def __init__(self) -> None:
        self._file: IO[bytes] = io.BytesIO()
        self._on_disk = False
        self._end = 0
        self._buffers: dict[int, array[int]] = {}
        self._buffered_rows = 0
        self._chunks: dict[int, list[Chunk]] = {}

    @property
    def ranks(self) -> list[int]:
        """The ranks that have rows, ascending."""
        return sorted(self._chunks.keys() | self._buffers.keys())

    def append(self, rank: int, row: tuple[int, ...]) -> None:
        """Keep one row of ``WIDTH`` integers within int64."""
        buffer = self._buffers.get(rank)
        if buffer is None:
            buffer = self._buffers[rank] = array("q")
        buffer.extend(row)
        self._buffered_rows += 1
        if len(buffer) >= ROWS_PER_CHUNK * WIDTH:
            self._write(rank, self._buffers.pop(rank))
        elif self._buffered_rows >= MAX_BUFFERED_ROWS:
            self.flush()

    def extend(self, rank: int, table: Int64Array) -> None:
        """Keep whole rows, shape (N, fields of a row), which are of no file and line.

        Rows of a rank are to be appended one by one, or in this way; not in both.
        """
        padded = np.zeros((len(table), WIDTH), dtype=np.int64)
        padded[:, : len(ROW_FIELDS)] = table
        self._put_table(rank, padded)

    def flush(self) -> None:
        """Write what is buffered; to be called before chunks are read."""
        for rank in sorted(self._buffers):
            self._write(rank, self._buffers.pop(rank))

    def chunks(self, rank: int) -> list[Chunk]:
        """Return the chunks of a rank in order."""
        return self._chunks.get(rank, [])

    def read(self, chunk: Chunk) -> Int64Array:
        """Return the rows of a chunk, shape (rows, WIDTH)."""
        self._file.seek(chunk.offset)
        raw = self._file.read(chunk.rows * WIDTH * 8)
        return np.frombuffer(raw, dtype=np.int64).reshape(chunk.rows, WIDTH)

    def tables(self, rank: int) -> Iterator[Int64Array]:
        """Yield the rows of a rank, chunk by chunk."""
        for chunk in self.chunks(rank):
            yield self.read(chunk)

    def replace(self, rank: int, table: Int64Array) -> None:
        """Put ``table`` in the place of all rows of a rank."""
        self._chunks[rank] = []
        self._put_table(rank, table)

    def close(self) -> None:
        """Let go of the rows."""
        self._file.close()

    def _put_table(self, rank: int, table: Int64Array) -> None:
        for start in range(0, len(table), ROWS_PER_CHUNK):
            part = table[start : start + ROWS_PER_CHUNK]
            self._put(rank, part.tobytes(), len(part), int(part[0, _STEP_COLUMN]))

    def _write(self, rank: int, buffer: array[int]) -> None:
        rows = len(buffer) // WIDTH
        self._buffered_rows -= rows
        self._put(rank, buffer.tobytes(), rows, buffer[_STEP_COLUMN])

    def _put(self, rank: int, raw: bytes, rows: int, first_step: int) -> None:
        if not self._on_disk and self._end + len(raw) > MAX_MEMORY_BYTES:
            self._move_to_disk()
        self._file.seek(self._end)
        self._file.write(raw)
        chunk = Chunk(offset=self._end, rows=rows, first_step=first_step)
        self._chunks.setdefault(rank, []).append(chunk)
        self._end += len(raw)

    def _move_to_disk(self) -> None:
        from tempfile import TemporaryFile  # slow to import, and few inputs are so large

        file = TemporaryFile()  # noqa: SIM115  closed by close()
        self._file.seek(0)
        while piece := self._file.read(1 << 20):
            file.write(piece)
        self._file.close()
        self._file, self._on_disk = file, True
