from __future__ import annotations

import random
import zlib

import pytest

from paceline.ring import layout as at
from paceline.ring.rows import whole_records


def stretch(first: int, count: int, seed: int = 1) -> bytearray:
    """Records of random bytes, each with its checksum and its commit word."""
    chance = random.Random(seed)
    raw = bytearray()
    for number in range(first, first + count):
        body = chance.randbytes(at.RECORD_CRC_OFFSET)
        raw += body + at.U64.pack(zlib.crc32(body)) + at.U64.pack(number + 1)
    return raw


@pytest.mark.parametrize("first", [0, 7, (1 << 40) - 3])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 255, 256])
def test_whole_records_are_seen_as_a_whole(first: int, count: int) -> None:
    assert whole_records(bytes(stretch(first, count)), first) == count


@pytest.mark.parametrize("offset", range(at.RECORD_BYTES))
def test_no_damaged_byte_is_missed(offset: int) -> None:
    raw = stretch(5, 9)
    raw[4 * at.RECORD_BYTES + offset] ^= 0x10
    unchecked = at.RECORD_CRC_OFFSET + 4 <= offset < at.RECORD_COMMIT_OFFSET
    assert whole_records(bytes(raw), 5) == (9 if unchecked else 4)


@pytest.mark.parametrize("mask", [1, 0x80, 0xFF])
@pytest.mark.parametrize("bad", [(0, 1), (2, 7), (0, 1, 2, 3), tuple(range(9))])
def test_the_same_damage_in_several_records_does_not_hide_itself(
    bad: tuple[int, ...], mask: int
) -> None:
    raw = stretch(0, 9)
    for number in bad:
        raw[number * at.RECORD_BYTES + at.RECORD_CRC_OFFSET] ^= mask
    assert whole_records(bytes(raw), 0) == bad[0]


def test_records_of_another_lap_or_in_another_order_are_not_whole() -> None:
    raw = stretch(0, 9)
    assert whole_records(bytes(raw), 9) == 0
    size = at.RECORD_BYTES
    raw[size : 3 * size] = raw[2 * size : 3 * size] + raw[size : 2 * size]
    assert whole_records(bytes(raw), 0) == 1
