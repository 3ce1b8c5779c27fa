"""``ranks_blob`` as collectors before version 4 wrote it; databases hold such rows for a while.

Version 3 was a head (version byte; number of ranks R, bytes per value W and length of the first
part as little-endian u32, u8, u32) and two zlib streams, of the figures (3, R) and of the phases
(7, R). A stream held int64 of which only the W lowest bytes were kept, byte-shuffled. Versions 1
and 2 were a version byte, R as u32, and one stream of 8 bytes a value; version 1 knew the first
five phases.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np

from paceline_service.analysis.records import Int64Array

_HEAD = struct.Struct("<BIBI")
_FIRST_HEAD = struct.Struct("<BI")
_ROWS_OF = {1: 8, 2: 10}


def unpack_old(blob: bytes, *, rows: int, figures: int, phases: bool) -> Int64Array:
    """Return the arrays in a blob of version 1 to 3.

    Args:
        blob: it.
        rows: how many rows there are today; those that its version did not know are 0.
        figures: how many of them are no phases.
        phases: whether those of the phases are wanted.
    """
    if blob[0] in _ROWS_OF:
        whole = _unpack_first(blob, rows)
        return whole if phases else whole[:figures]
    _, ranks, width, length = _HEAD.unpack_from(blob)
    behind = _HEAD.size + length
    out = np.empty((rows if phases else figures, ranks), dtype=np.int64)
    _inflate(blob[_HEAD.size : behind], width, out[:figures])
    if phases:
        _inflate(blob[behind:], width, out[figures:])
    return out


def _inflate(packed: bytes, width: int, out: Int64Array) -> None:
    planes = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(width, out.size)
    # The highest byte has the sign; the others are added below it.
    total = planes[-1].view(np.int8).astype(np.int64)
    for plane in planes[-2::-1]:
        total <<= 8
        total |= plane
    out[:] = total.reshape(out.shape)


def _unpack_first(blob: bytes, rows: int) -> Int64Array:
    version, ranks = _FIRST_HEAD.unpack_from(blob)
    shuffled = np.frombuffer(zlib.decompress(blob[_FIRST_HEAD.size :]), dtype=np.uint8)
    plain = np.ascontiguousarray(shuffled.reshape(8, -1).T)
    known = plain.view("<i8").reshape(_ROWS_OF[version], ranks).astype(np.int64)
    unknown = np.where(known[:1] < 0, -1, 0).repeat(rows - len(known), axis=0)
    return np.concatenate([known, unknown])
