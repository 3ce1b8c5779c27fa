"""Whole records as they lie in a ring: cheap to keep, to cut and to join; tuples on demand."""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Iterator

from paceline.ring import layout as at
from paceline.ring.layout import Record
from paceline.vocabulary import RecordKind

_FIELDS = struct.Struct(at.RECORD.format + f"{at.RECORD_BYTES - at.RECORD.size}x")
_CHECKED = struct.Struct(f"<{at.RECORD_CRC_OFFSET}sI4xQ")
_RECORD_OF_NOTHING = _CHECKED.pack(
    bytes(at.RECORD_CRC_OFFSET), zlib.crc32(bytes(at.RECORD_CRC_OFFSET)), 0
)
_RECORD_WORDS = at.RECORD_BYTES // 8
_HALF_WORDS = at.RECORD_BYTES // 4
_GROUP_AND_KIND = 14
"""The 4-byte word of a record that holds group, kind and code."""


class Rows:
    """Records back to back, each of ``layout.RECORD_BYTES`` bytes."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes = b"") -> None:
        self.raw = raw

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.raw) // at.RECORD_BYTES

    def __iter__(self) -> Iterator[Record]:
        """Yield each record as a tuple."""
        for values in _FIELDS.iter_unpack(self.raw):
            start, end, join, issue, payload, seq, step, peer, group, kind, code, flags = values
            yield Record(
                kind, code, group, seq, step, peer, payload, start, end, join, issue, flags
            )

    def groups(self) -> set[int]:
        """Return the indices of the groups that its collectives name."""
        # One number for group and kind: few of them are different.
        pairs = set(memoryview(self.raw).cast("I")[_GROUP_AND_KIND::_HALF_WORDS].tolist())
        kind = RecordKind.COLLECTIVE
        return {pair & 0xFFFF for pair in pairs if pair >> 16 & 0xFF == kind}


def pack_record(record: Record) -> bytes:
    """Return ``record`` as it would lie in a ring, without checksum and commit word."""
    kind, code, group, seq, step, peer, payload, start, end, join, issue, flags = record
    return at.RECORD.pack(
        start, end, join, issue, payload, seq, step, peer, group, kind, code, flags
    ).ljust(at.RECORD_BYTES, b"\0")


def whole_records(raw: bytes, first: int) -> int:
    """Return how many records at the beginning of ``raw`` are whole.

    Args:
        raw: a copy of neighbouring slots.
        first: index in the ring of the first of them.
    """
    count = len(raw) // at.RECORD_BYTES
    if zlib.crc32(raw) == _crc_of_whole(first, count):
        return count
    for number, (body, crc, commit) in enumerate(_CHECKED.iter_unpack(raw)):
        if commit != first + number + 1 or zlib.crc32(body) != crc:
            return number
    return count


def _crc_of_whole(first: int, count: int) -> int:
    """Return the CRC-32 of any ``count`` records that are whole, from index ``first`` on.

    A checksum is linear: a body and its own checksum, put over another such pair, leave the
    checksum of what surrounds them as it is. So records of nothing tell it for all others, and one
    look at a stretch does for a look at each record.
    """
    records = bytearray(_RECORD_OF_NOTHING * count)
    commits = array("Q", range(first + 1, first + 1 + count))
    memoryview(records).cast("Q")[at.RECORD_COMMIT_OFFSET // 8 :: _RECORD_WORDS] = memoryview(
        commits
    )
    return zlib.crc32(records)
