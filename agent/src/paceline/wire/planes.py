"""Records as they lie in a ring to the columns of a frame, without a Python object per record.

A column is stored byte by byte: all lowest bytes first (docs/wire.md). So most columns are slices
of the ring's own bytes. Differences are taken for all records at once, in one long integer: 64 bits
a record, offset so that no lane borrows from its neighbour.
"""

from __future__ import annotations

from paceline.errors import WireError
from paceline.ring import layout as at
from paceline.wire.bundles import BundleColumn
from paceline.wire.columns import Column
from paceline.wire.frames import COLUMN_NAMES

_LANE = 8
_WORDS = at.RECORD_BYTES // _LANE
_SIGNS = bytes(0 if byte < 0x80 else 0xFF for byte in range(256))
"""The byte above one that holds a sign."""
_START, _END, _JOIN, _ISSUE, _PAYLOAD, _SEQ, _STEP = range(7)
"""The 8-byte words of a record; ``_STEP`` holds the step below the peer."""
_PEER, _GROUP, _KIND, _CODE, _FLAGS = 52, 56, 58, 59, 60
"""Offsets of the fields behind them."""


def encode_raw(raw: bytes | bytearray, *, units: bool = False) -> dict[str, Column]:
    """Return records of ``layout.RECORD_BYTES`` bytes each as the columns of a frame.

    Args:
        raw: the records.
        units: for ``encode_units``: times lose their lowest byte, which is 0, and the first
            difference is to the value itself.

    Raises:
        WireError: a value takes more than 63 bits.
    """
    count = len(raw) // at.RECORD_BYTES
    if not count:
        return {name: Column(width=1, delta=False, data=b"") for name in COLUMN_NAMES}
    words = memoryview(raw).cast("Q")
    bytes_of = {word: words[word::_WORDS].tobytes() for word in (*range(_SEQ + 1), _STEP)}
    if not all(bytes_of[word][_LANE - 1 :: _LANE].isascii() for word in range(_SEQ + 1)):
        raise WireError("a record holds a value of more than 63 bits; drop the record")
    lanes = _Lanes(count, based=units)
    cut = 1 if units else 0
    start = lanes.load(bytes_of[_START])
    return {
        "kind": _unsigned(raw, _KIND, 1),
        "code": _unsigned(raw, _CODE, 1),
        "group": _unsigned(raw, _GROUP, 2),
        "seq": lanes.differences(lanes.load(bytes_of[_SEQ])),
        "step": lanes.differences(lanes.low_halves(lanes.load(bytes_of[_STEP]))),
        "peer": _column([raw[offset :: at.RECORD_BYTES] for offset in range(_PEER, _GROUP)]),
        "payload_bytes": _column(_planes(bytes_of[_PAYLOAD])),
        "start_ns": lanes.differences(start, cut),
        "end_after_ns": lanes.known(lanes.load(bytes_of[_END]), start, cut),
        "join_after_ns": lanes.known(lanes.load(bytes_of[_JOIN]), start, cut),
        "issue_before_ns": lanes.known(lanes.load(bytes_of[_ISSUE]), start, cut, before=True),
        "flags": _unsigned(raw, _FLAGS, 4),
    }


def encode_units(raw: bytes | bytearray) -> tuple[list[BundleColumn], list[int]]:
    """Return records as the columns of a bundle, and the bases of those that have one.

    Args:
        raw: as for ``encode_raw``, all times multiples of 256 ns: ``RESOLUTION_NS`` is the weight
            of the second byte, so that a time in its units is a time without the lowest byte.

    Raises:
        WireError: a value takes more than 62 bits.
    """
    count = len(raw) // at.RECORD_BYTES
    if not count:
        return [BundleColumn(width=1, data=b"") for _ in COLUMN_NAMES], [0, 0, 0]
    columns = encode_raw(raw, units=True)
    words = memoryview(raw).cast("Q")
    bases = [words[_START] >> 8, words[_SEQ], words[_STEP] & 0xFFFFFFFF]
    if max(bases) >= 1 << 62:
        raise WireError("a record holds a value of more than 62 bits; drop the record")
    return [_shortened(columns[name], count) for name in COLUMN_NAMES], bases


def _shortened(column: Column, count: int) -> BundleColumn:
    width, data = column.width, column.data
    planes = [data[plane * count : (plane + 1) * count] for plane in range(width)]
    if all(plane.count(plane[:1]) == count for plane in planes):
        data = b"".join(plane[:1] for plane in planes)
    return BundleColumn(width=width, data=data)


class _Lanes:
    """Sums of ``count`` values of 63 bits at once: each has 64 bits of one integer."""

    def __init__(self, count: int, *, based: bool) -> None:
        self._bytes = count * _LANE
        self._based = based
        self._top = self.load((1 << 63).to_bytes(_LANE, "little") * count)
        """The highest bit of every lane."""
        self._below = self._top - (self._top >> 63)
        """All the other bits."""

    def load(self, values: bytes) -> int:
        return int.from_bytes(values, "little")

    def low_halves(self, values: int) -> int:
        return values & ((self._top >> 31) - (self._top >> 63))

    def differences(self, values: int, cut: int = 0) -> Column:
        """Return each value less the one before it, the first less 0 or less itself."""
        before = (values << 64) & (self._top | self._below)
        if self._based:
            before |= values & ((1 << 64) - 1)
        return self._store(self._subtract(values, before), cut, delta=True)

    def known(self, values: int, start: int, cut: int = 0, *, before: bool = False) -> Column:
        """Return ``values - start`` (or ``start - values``), -1 where the value is 0."""
        found = self._subtract(start, values) if before else self._subtract(values, start)
        missing = ((values + self._below) & self._top) ^ self._top
        if missing:
            found |= (missing << 1) - (missing >> 63)
        return self._store(found, cut)

    def _subtract(self, left: int, right: int) -> int:
        return ((left | self._top) - right) ^ self._top

    def _store(self, values: int, cut: int = 0, *, delta: bool = False) -> Column:
        return _column(_planes(values.to_bytes(self._bytes, "little"))[cut:], delta=delta)


def _planes(values: bytes) -> list[bytes]:
    return [values[byte::_LANE] for byte in range(_LANE)]


def _unsigned(raw: bytes | bytearray, offset: int, width: int) -> Column:
    planes = [raw[byte :: at.RECORD_BYTES] for byte in range(offset, offset + width)]
    if not planes[-1].isascii():  # its highest bit is no sign
        planes += [bytes(len(planes[-1]))] * width
    return _column(planes)


def _column(planes: list[bytes] | list[bytes | bytearray], *, delta: bool = False) -> Column:
    """Return two's complements, given lowest bytes first, in the narrowest width."""
    for width in (1, 2, 4):
        if width >= len(planes):
            break
        sign = planes[width - 1].translate(_SIGNS)
        if all(plane == sign for plane in planes[width:]):
            break
    else:
        width = 8
        if len(planes) < width:
            planes = [*planes, planes[-1].translate(_SIGNS)]
    return Column(width=width, delta=delta, data=b"".join(planes[:width]))
