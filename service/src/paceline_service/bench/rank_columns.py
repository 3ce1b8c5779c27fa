"""Frames of wire v1 of many ranks at once: what ``encode_rows`` makes, in a tenth of the time.

Databases that were filled before bundles hold them, and old agents send them.
"""

from __future__ import annotations

import numpy as np

from paceline.wire.codec import ROW_FIELDS
from paceline.wire.columns import Column
from paceline.wire.frames import DELTA_COLUMNS
from paceline_service.analysis.records import Int64Array

_WIDTHS = ((1, 1 << 7), (2, 1 << 15), (4, 1 << 31), (8, 1 << 62))


def columns_of_ranks(table: Int64Array) -> list[dict[str, Column]]:
    """Return the columns of every rank's frame.

    Args:
        table: (R ranks, N records, 12 fields of ``ROW_FIELDS``), times absolute, 0 unknown.
    """
    field = {name: table[:, :, place] for place, name in enumerate(ROW_FIELDS)}
    start = field["start_ns"]
    values = {
        **{name: field[name] for name in ROW_FIELDS[:8]},
        "end_after_ns": np.where(field["end_ns"] > 0, field["end_ns"] - start, -1),
        "join_after_ns": np.where(field["join_ns"] > 0, field["join_ns"] - start, -1),
        "issue_before_ns": np.where(field["issue_ns"] > 0, start - field["issue_ns"], -1),
        "flags": field["flags"],
    }
    made: list[dict[str, Column]] = [{} for _ in range(len(table))]
    for name, of_ranks in values.items():
        for columns, column in zip(made, _encode(of_ranks, name in DELTA_COLUMNS), strict=True):
            columns[name] = column
    return made


def _encode(values: Int64Array, delta: bool) -> list[Column]:
    if delta:
        values = np.diff(values, axis=1, prepend=0)
    if len(values) > 1 and (values == values[0]).all():
        return _encode_rows(values[:1], delta) * len(values)
    return _encode_rows(values, delta)


def _encode_rows(values: Int64Array, delta: bool) -> list[Column]:
    largest = np.maximum(values.max(axis=1), -values.min(axis=1) - 1)
    made: dict[int, Column] = {}
    above = -1
    for width, limit in _WIDTHS:
        chosen = np.flatnonzero((largest > above) & (largest < limit))
        above = limit - 1
        if not len(chosen):
            continue
        narrow = values[chosen].astype(f"<i{width}")
        bytes_of = narrow.view(np.uint8).reshape(len(chosen), -1, width)
        shuffled = np.ascontiguousarray(bytes_of.transpose(0, 2, 1))
        for rank, data in zip(chosen.tolist(), shuffled, strict=True):
            made[rank] = Column(width=width, delta=delta, data=data.tobytes())
    return [made[rank] for rank in range(len(values))]
