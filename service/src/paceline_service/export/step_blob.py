"""``ranks_blob`` of the table ``step_summaries``: the arrays per rank of one step, packed small.

Version 3 is a head (version byte; number of ranks R, bytes per value W and length of the first
part as little-endian u32, u8, u32) and two zlib streams: self, wait and communication (3, R), and
self time in the phases host, input, forward, backward, optimizer, copy, checkpoint (7, R). A
stream holds int64 of which only the W lowest bytes are kept, byte-shuffled. ns, -1 where a rank
has no data. Who wants no phases unpacks a third.

Versions 1 and 2 were a version byte, R as u32, and one stream of 8 bytes a value; version 1 knew
the first five phases.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES, phase_name
from paceline_service.analysis.records import Int64Array

FIGURES = 3
"""Rows before those of the phases: self, wait, communication."""
ROWS = FIGURES + len(EXCLUSIVE_PHASES)
PHASE_NAMES = [phase_name(phase) for phase in EXCLUSIVE_PHASES]
_VERSION = 3
_HEAD = struct.Struct("<BIBI")
_OLD_HEAD = struct.Struct("<BI")
_ROWS_OF_OLD = {1: 8, 2: 10}
_LEVEL = 1


def stack_per_rank(
    self_ns: Int64Array, wait_ns: Int64Array, comm_ns: Int64Array, phase_self_ns: Int64Array
) -> Int64Array:
    """Return the arrays (R,) and (R, 7) of a step as one (10, R)."""
    return np.concatenate([np.stack([self_ns, wait_ns, comm_ns]), phase_self_ns.T])


def pack_ranks(per_rank: Int64Array) -> bytes:
    """Return (10, R) as ``ranks_blob``."""
    highest = max(int(per_rank.max(initial=0)), -int(per_rank.min(initial=0)))
    width = min(highest.bit_length() // 8 + 1, 8)  # a bit for the sign
    figures = _deflate(per_rank[:FIGURES], width)
    head = _HEAD.pack(_VERSION, per_rank.shape[1], width, len(figures))
    return head + figures + _deflate(per_rank[FIGURES:], width)


def unpack_ranks(blob: bytes, *, phases: bool = True) -> Int64Array:
    """Return what ``pack_ranks`` packed: (10, R), or without the phases (3, R)."""
    if blob[0] in _ROWS_OF_OLD:
        whole = _unpack_old(blob)
        return whole if phases else whole[:FIGURES]
    version, ranks, width, length = _HEAD.unpack_from(blob)
    assert version == _VERSION, f"ranks_blob of version {version} in the database"
    behind = _HEAD.size + length
    out = np.empty((ROWS if phases else FIGURES, ranks), dtype=np.int64)
    _inflate(blob[_HEAD.size : behind], width, out[:FIGURES])
    if phases:
        _inflate(blob[behind:], width, out[FIGURES:])
    return out


def _deflate(values: Int64Array, width: int) -> bytes:
    plain = np.ascontiguousarray(values.astype("<i8")).view(np.uint8).reshape(-1, 8)
    return zlib.compress(np.ascontiguousarray(plain[:, :width].T).tobytes(), _LEVEL)


def _inflate(packed: bytes, width: int, out: Int64Array) -> None:
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(width, out.size)
    # The highest byte has the sign; the others are added below it.
    total = planes[-1].view(np.int8).astype(np.int64)
    for plane in planes[-2::-1]:
        total <<= 8
        total |= plane
    out[:] = total.reshape(out.shape)


def _unpack_old(blob: bytes) -> Int64Array:
    version, ranks = _OLD_HEAD.unpack_from(blob)
    shuffled = np.frombuffer(zlib.decompress(blob[_OLD_HEAD.size :]), dtype=np.uint8)
    plain = np.ascontiguousarray(shuffled.reshape(8, -1).T)
    known = plain.view("<i8").reshape(_ROWS_OF_OLD[version], ranks).astype(np.int64)
    unknown = np.where(known[:1] < 0, -1, 0).repeat(ROWS - len(known), axis=0)
    return np.concatenate([known, unknown])
