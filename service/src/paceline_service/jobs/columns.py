"""Columns of many frames as one table (docs/wire.md).

``ingest.columns`` does the same for one frame. Here a numpy call serves one column of hundreds of
frames, because a call costs as much as the fifty records that a frame of a large job holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.wire.columns import Column
from paceline.wire.frames import COLUMN_NAMES, Frame
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """Where the rows of F frames lie in a table of N rows."""

    counts: Int64Array
    """(F,)"""
    first: Int64Array
    """(F,) the first row of each."""
    even: bool
    """Whether all have equally many rows."""

    def rows(self) -> tuple[Int64Array, Int64Array]:
        """Return the frame of each row and its place within, (N,) each."""
        frame = np.repeat(np.arange(len(self.counts)), self.counts)
        return frame, np.arange(len(frame)) - self.first[frame]

    def of(self, chosen: NDArray[np.intp]) -> _Layout:
        """Return the layout of some of the frames alone."""
        return _layout(self.counts[chosen])


def decode_frames(frames: Sequence[Frame]) -> Table:
    """Return the records of ``frames`` in their order; ``group`` is still each rank's own number.

    The frames' decoder has checked that the lengths fit (``paceline.wire.codec``).
    """
    layout = _layout(np.array([frame.count for frame in frames], dtype=np.int64))
    every = [frame.columns for frame in frames]
    values = {name: _decode([one[name] for one in every], layout) for name in COLUMN_NAMES}
    start_ns = values["start_ns"]
    end_after_ns = values.pop("end_after_ns")
    join_after_ns = values.pop("join_after_ns")
    issue_before_ns = values.pop("issue_before_ns")
    rank = np.array([frame.rank for frame in frames], dtype=np.int64)
    return Table(
        rank=np.repeat(rank, layout.counts),
        end_ns=np.where(end_after_ns >= 0, start_ns + end_after_ns, 0),
        join_ns=np.where(join_after_ns >= 0, start_ns + join_after_ns, 0),
        issue_ns=np.where(issue_before_ns >= 0, start_ns - issue_before_ns, 0),
        **values,
    )


def _layout(counts: Int64Array) -> _Layout:
    return _Layout(
        counts=counts,
        first=np.cumsum(counts) - counts,
        even=bool((counts == counts[:1]).all()),
    )


def _decode(columns: list[Column], layout: _Layout) -> Int64Array:
    """Return one column of all frames, (N,)."""
    forms = {(column.width, column.delta) for column in columns}
    if len(forms) == 1:
        return _alike([column.data for column in columns], *forms.pop(), layout)
    of_frame = [(column.width, column.delta) for column in columns]
    values = np.empty(int(layout.counts.sum()), dtype=np.int64)
    for form in forms:
        chosen = np.array([at for at, one in enumerate(of_frame) if one == form], dtype=np.intp)
        part = layout.of(chosen)
        frame, place = part.rows()
        data = [columns[at].data for at in chosen.tolist()]
        values[layout.first[chosen][frame] + place] = _alike(data, *form, part)
    return values


def _alike(data: list[bytes], width: int, delta: bool, layout: _Layout) -> Int64Array:
    """Return the values of columns of one width."""
    raw = np.frombuffer(b"".join(data), dtype=np.uint8)
    if width == 1:
        values = raw.view(np.int8).astype(np.int64)
    elif layout.even:
        planes = raw.reshape(len(data), width, -1).transpose(0, 2, 1)
        values = np.ascontiguousarray(planes).view(f"<i{width}").reshape(-1).astype(np.int64)
    else:
        frame, place = layout.rows()
        lowest = layout.first[frame] * width + place
        step = layout.counts[frame]
        plain = np.empty((len(frame), width), dtype=np.uint8)
        for plane in range(width):
            plain[:, plane] = raw[lowest + plane * step]
        values = plain.view(f"<i{width}").reshape(-1).astype(np.int64)
    if not delta or not len(values):
        return values
    if layout.even:
        return np.cumsum(values.reshape(len(data), -1), axis=1, dtype=np.int64).reshape(-1)
    total = np.cumsum(values, dtype=np.int64)
    filled = layout.counts > 0
    first = layout.first[filled]
    return total - np.repeat(total[first] - values[first], layout.counts[filled])
