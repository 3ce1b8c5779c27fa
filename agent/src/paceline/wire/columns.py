"""Columns of integers as few bytes: difference, narrowest width, byte shuffle (docs/wire.md).

Encoding uses the standard library only, because the sidecar has no numpy;
the collector decodes the same bytes with numpy (``paceline_service.ingest.columns``).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from itertools import chain, islice
from operator import sub

import msgspec

from paceline.errors import WireError

RESOLUTION_NS = 256
"""The sidecar sends times in multiples of it: the lowest byte of a time is noise that no
compression takes away, a quarter of all that a record takes. What stamps a time takes longer."""
_TYPECODES = {1: "b", 2: "h", 4: "i", 8: "q"}
_LIMITS = ((1, 1 << 7), (2, 1 << 15), (4, 1 << 31), (8, 1 << 63))


class Column(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``count`` signed integers of ``width`` bytes, shuffled: all lowest bytes first.

    With ``delta`` each value is the difference to the one before it, the first to 0.
    """

    width: int
    delta: bool
    data: bytes


def encode(values: Sequence[int], *, delta: bool = False) -> Column:
    """Return ``values`` (each within int64) as a column."""
    if delta:
        _check_range(values)
        values = list(map(sub, values, chain((0,), islice(values, 0, max(len(values) - 1, 0)))))
    largest = max(max(values, default=0), -min(values, default=0) - 1)
    width = next((w for w, limit in _LIMITS if largest < limit), 0)
    if not width:
        _check_range(values)
    packed = array(_TYPECODES[width], values)
    if sys.byteorder == "big":
        packed.byteswap()
    raw = packed.tobytes()
    if width > 1:
        raw = b"".join(raw[byte::width] for byte in range(width))
    return Column(width=width, delta=delta, data=raw)


def _check_range(values: Sequence[int]) -> None:
    """Raise WireError for what the reader could not hold, even where its difference would fit."""
    largest = max(max(values, default=0), -min(values, default=0) - 1)
    if largest >= 1 << 63:
        raise WireError(f"a column value of {largest} does not fit 64 bits; drop the record")


def decode(column: Column, count: int) -> list[int]:
    """Return the ``count`` integers of ``column``.

    Raises:
        WireError: width or length do not fit.
    """
    width = column.width
    if width not in _TYPECODES or len(column.data) != width * count:
        raise WireError(
            f"a column of width {width} has {len(column.data)} bytes for {count} rows; "
            "the frame is corrupt"
        )
    raw = bytearray(len(column.data))
    for byte in range(width):
        raw[byte::width] = column.data[byte * count : (byte + 1) * count]
    values = array(_TYPECODES[width])
    values.frombytes(bytes(raw))
    if sys.byteorder == "big":
        values.byteswap()
    if not column.delta:
        return list(values)
    total = 0
    out = []
    for value in values:
        total += value
        out.append(total)
    return out
