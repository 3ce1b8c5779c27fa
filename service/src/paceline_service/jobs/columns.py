"""Columns of many frames as one table (docs/wire.md).

``ingest.columns`` does the same for one frame. Here a numpy call serves one column of hundreds of
frames, because a call costs as much as the fifty records that a frame of a large job holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.wire.bundle_codec import BASED_COLUMNS
from paceline.wire.bundles import Bundle, BundleColumn
from paceline.wire.columns import RESOLUTION_NS, Column
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


def decode_bundles(bundles: Sequence[Bundle]) -> tuple[Table, Int64Array]:
    """Return the records of ``bundles`` in their order, and how many there are of each member.

    ``group`` is still each rank's own number. Lengths were checked as those of frames.
    """
    layout = _layout(np.array([bundle.count for bundle in bundles], dtype=np.int64))
    every = [bundle.body.columns for bundle in bundles]
    values = {
        name: _decode_shortened([one[place] for one in every], layout)
        for place, name in enumerate(COLUMN_NAMES)
    }
    bases = np.array([bundle.body.bases for bundle in bundles], dtype=np.int64)
    for place, name in enumerate(BASED_COLUMNS):
        values[name] = _summed(values[name], bases[:, place], layout)
    start_ns = values.pop("start_ns") * RESOLUTION_NS
    end_after, join_after = values.pop("end_after_ns"), values.pop("join_after_ns")
    issue_before = values.pop("issue_before_ns")
    counts = np.array([n for bundle in bundles for n in bundle.body.counts], dtype=np.int64)
    rank = np.array([rank for bundle in bundles for rank in bundle.origin.ranks], dtype=np.int64)
    table = Table(
        rank=np.repeat(rank, counts),
        start_ns=start_ns,
        end_ns=np.where(end_after >= 0, start_ns + end_after * RESOLUTION_NS, 0),
        join_ns=np.where(join_after >= 0, start_ns + join_after * RESOLUTION_NS, 0),
        issue_ns=np.where(issue_before >= 0, start_ns - issue_before * RESOLUTION_NS, 0),
        **values,
    )
    return table, counts


def _decode_shortened(columns: list[BundleColumn], layout: _Layout) -> Int64Array:
    """Return a column of all bundles, (N,), where some may hold one value for all their rows."""
    counts = layout.counts.tolist()
    full = [Column(width=one.width, delta=False, data=one.data) for one in columns]
    short = [
        len(one.data) == one.width and count != 1
        for one, count in zip(columns, counts, strict=True)
    ]
    if not any(short):
        return _decode(full, layout)
    ones = [at for at, is_one in enumerate(short) if is_one and counts[at]]
    single = _decode([full[at] for at in ones], _layout(np.ones(len(ones), dtype=np.int64)))
    if all(short):
        return np.repeat(single, layout.counts[ones])
    values = np.empty(int(layout.counts.sum()), dtype=np.int64)
    first = layout.first
    for at, value in zip(ones, single.tolist(), strict=True):
        values[first[at] : first[at] + counts[at]] = value
    others = np.array([at for at, is_one in enumerate(short) if not is_one], dtype=np.intp)
    part = layout.of(others)
    frame, place = part.rows()
    values[first[others][frame] + place] = _decode([full[at] for at in others.tolist()], part)
    return values


def _summed(values: Int64Array, bases: Int64Array, layout: _Layout) -> Int64Array:
    """Return values from differences within each bundle, the first to its base."""
    if not len(values):
        return values
    if layout.even:
        sums = np.cumsum(values.reshape(len(bases), -1), axis=1, dtype=np.int64)
        return (sums + bases[:, None]).reshape(-1)
    total = np.cumsum(values, dtype=np.int64)
    filled = layout.counts > 0
    first = layout.first[filled]
    before = total[first] - values[first] - bases[filled]
    return total - np.repeat(before, layout.counts[filled])


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
