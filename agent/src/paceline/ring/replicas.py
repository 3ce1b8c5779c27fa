"""The table of replica digests in a ring: the newest few, each in its slot (docs/ring.md).

Each is worth little alone and much beside those of the other ranks, so what is overwritten before
it was read is only counted. An old reader does not look here, and finds nothing missing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple
from zlib import crc32

DIGESTS_OFFSET = 2048
DIGEST_SLOTS = 32
DIGEST_BYTES = 64
_SLOT = struct.Struct("<QQQQQIHHII")
"""commit (number + 1, stored last), time_ns, step, seq, digest, layout, group, module, part, parts.
The CRC-32 of all behind the commit word follows."""
_CRC = struct.Struct("<I")
_CRC_OFFSET = _SLOT.size
_WORD = 8


class ReplicaDigest(NamedTuple):
    """What the parameters of one rank added up to at one check."""

    time_ns: int
    """When it was taken, monotonic ns."""
    step: int
    seq: int
    """Collectives that the group had issued by then, as torch counts them."""
    digest: int
    """64 bits."""
    layout: int
    """Checksum of the sizes and types of what was read: only equal ones can be compared."""
    group: int
    """The rank's own number of the group whose members are replicas of each other."""
    module: int
    """Counts the modules of one group."""
    part: int
    """Which part of the parameters was read, from 0, and how many there are."""
    parts: int


def pack_digest(one: ReplicaDigest) -> bytes:
    """Return what lies behind the commit word of a slot."""
    body = _SLOT.pack(
        0, one.time_ns, one.step, one.seq, one.digest, one.layout, one.group, one.module,
        one.part, one.parts,
    )[_WORD:]  # fmt: skip
    return (body + _CRC.pack(crc32(body))).ljust(DIGEST_BYTES - _WORD, b"\0")


def read_digests(
    read: Callable[[int, int], bytes], first: int
) -> tuple[list[ReplicaDigest], int, int]:
    """Return the digests from number ``first`` on, the number behind them, and how many were lost.

    Args:
        read: returns bytes of the ring from an offset on.
        first: how many digests were read or lost before.
    """
    table = read(DIGESTS_OFFSET, DIGEST_SLOTS * DIGEST_BYTES)
    found: list[tuple[int, ReplicaDigest]] = []
    for slot in range(DIGEST_SLOTS):
        begin = slot * DIGEST_BYTES
        commit, *fields = _SLOT.unpack_from(table, begin)
        body = table[begin + _WORD : begin + _CRC_OFFSET]
        (crc,) = _CRC.unpack_from(table, begin + _CRC_OFFSET)
        if commit > first and (commit - 1) % DIGEST_SLOTS == slot and crc32(body) == crc:
            found.append((commit - 1, ReplicaDigest(*fields)))
    if not found:
        return [], first, 0
    found.sort()
    behind = found[-1][0] + 1
    return [one for _, one in found], behind, behind - first - len(found)
