"""Columns of a frame as numpy arrays (docs/wire.md; ``paceline.wire.columns`` encodes them)."""

from __future__ import annotations

import numpy as np

from paceline.wire.columns import Column
from paceline.wire.frames import Frame
from paceline_service.analysis.records import Int64Array, Records


def decode_column(column: Column, count: int) -> Int64Array:
    """Return the ``count`` integers of ``column``, int64 of shape (count,).

    The frame's decoder has checked that the length fits (``paceline.wire.codec``).
    """
    shuffled = np.frombuffer(column.data, dtype=np.uint8).reshape(column.width, count)
    plain = np.ascontiguousarray(shuffled.T).view(f"<i{column.width}").reshape(count)
    values = plain.astype(np.int64)
    return np.cumsum(values, dtype=np.int64) if column.delta else values


def decode_records(frame: Frame) -> Records:
    """Return the records of ``frame``; ``group`` is still the rank's own number of it."""
    count = frame.count
    values = {name: decode_column(column, count) for name, column in frame.columns.items()
              if name in _WANTED}  # fmt: skip
    start_ns = values["start_ns"]
    end_after_ns = values.pop("end_after_ns")
    join_after_ns = values.pop("join_after_ns")
    issue_before_ns = values.pop("issue_before_ns")
    return Records(
        rank=frame.rank,
        end_ns=np.where(end_after_ns >= 0, start_ns + end_after_ns, 0),
        join_ns=np.where(join_after_ns >= 0, start_ns + join_after_ns, 0),
        issue_ns=np.where(issue_before_ns >= 0, start_ns - issue_before_ns, 0),
        **values,
    )


_WANTED = frozenset(
    {
        "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
        "start_ns", "end_after_ns", "join_after_ns", "issue_before_ns", "flags",
    }
)  # fmt: skip
