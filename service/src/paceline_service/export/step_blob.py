"""``ranks_blob`` of the table ``step_summaries``: the arrays per rank of one step, packed small.

Nothing is lost: what is read back is what was given, to the ns. Version 4 is a head (version byte;
number of ranks R, of ranks P with data and length of the first part, each a little-endian u32) and
two zlib streams: of self, wait and communication (3, P), and of self time in the phases host,
input, forward, backward, optimizer, copy, checkpoint (7, P). Who wants no phases unpacks less than
half. Ranks without data, -1 in every row, are left out.

A stream is a byte N, in the first one a bit for each rank (only where P < R), for each row base
(i64), shift (u8) and width (u8), then the rows. Of each value the base, the row's least, is taken
off, then so many zero bits (sidecars send multiples of 256 ns), and the ``width`` lowest bytes are
kept, byte-shuffled. Row N of a stream is not there: what stands for it is the sum of the three
figures, a rank's time in the step, which differs little between ranks; or self time less the sum
of the phases, which is 0 unless phases overlap. N is 255 where the row itself differs less.

Versions 1 to 3 are read by ``step_blob_old``.
"""

from __future__ import annotations

import struct
import zlib
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import EXCLUSIVE_PHASES, phase_name
from paceline_service.analysis.records import Int64Array
from paceline_service.export.step_blob_old import unpack_old

FIGURES = 3
"""Rows before those of the phases: self, wait, communication."""
ROWS = FIGURES + len(EXCLUSIVE_PHASES)
PHASE_NAMES = [phase_name(phase) for phase in EXCLUSIVE_PHASES]
_VERSION = 4
_HEAD = struct.Struct("<BIII")
_ROW_HEAD = np.dtype([("base", "<i8"), ("shift", "u1"), ("width", "u1")])
_ITSELF = 255
_LEAST_CUT = 64
"""Ranks: below, a code for each byte of each row takes what it saves."""


def stack_per_rank(
    self_ns: Int64Array, wait_ns: Int64Array, comm_ns: Int64Array, phase_self_ns: Int64Array
) -> Int64Array:
    """Return the arrays (R,) and (R, 7) of a step as one (10, R)."""
    return np.concatenate([np.stack([self_ns, wait_ns, comm_ns]), phase_self_ns.T])


def pack_ranks(per_rank: Int64Array) -> bytes:
    """Return (10, R) as ``ranks_blob``."""
    ranks = per_rank.shape[1]
    present = (per_rank != -1).any(axis=0)
    mask = b""
    if not present.all():
        per_rank = per_rank[:, present]
        mask = np.packbits(present).tobytes()
    # Sums may leave 64 bits and come back: arrays of integers wrap around without a word.
    total = per_rank[:FIGURES].sum(axis=0)
    unexplained = per_rank[0] - per_rank[FIGURES:].sum(axis=0)
    table = np.concatenate([per_rank, [total, unexplained]]).astype(np.int64, copy=False)
    spread = table.std(axis=1) if table.size else np.zeros(len(table))
    order = list(range(ROWS))
    missing = []
    for rows, instead in ((slice(0, FIGURES), ROWS), (slice(FIGURES, ROWS), ROWS + 1)):
        widest = int(spread[rows].argmax())
        there = spread[instead] < spread[rows][widest]
        missing.append(widest if there else _ITSELF)
        if there:
            order[rows.start + widest] = instead
    heads, planes = _planes(table[order])
    figures = _deflate(bytes(missing[:1]) + mask, heads[:FIGURES], planes[:FIGURES])
    phases = _deflate(bytes(missing[1:]), heads[FIGURES:], planes[FIGURES:])
    return _HEAD.pack(_VERSION, ranks, table.shape[1], len(figures)) + figures + phases


def unpack_ranks(blob: bytes, *, phases: bool = True) -> Int64Array:
    """Return what ``pack_ranks`` packed: (10, R), or without the phases (3, R)."""
    if blob[0] < _VERSION:
        return unpack_old(blob, rows=ROWS, figures=FIGURES, phases=phases)
    version, ranks, known, length = _HEAD.unpack_from(blob)
    assert version == _VERSION, f"ranks_blob of version {version} in the database"
    behind = _HEAD.size + length
    out = np.empty((ROWS if phases else FIGURES, known), dtype=np.int64)
    missing, mask = _inflate(blob[_HEAD.size : behind], out[:FIGURES], ranks)
    if missing != _ITSELF:  # its place holds the sum of all three
        out[missing] -= out[:FIGURES].sum(axis=0) - out[missing]
    if phases:
        missing, _ = _inflate(blob[behind:], out[FIGURES:], known)
        if missing != _ITSELF:  # its place holds self less the sum of all
            missing += FIGURES
            others = out[FIGURES:].sum(axis=0) - out[missing]
            out[missing] = out[0] - out[missing] - others
    if known == ranks:
        return out
    everybody = np.full((len(out), ranks), -1, dtype=np.int64)
    everybody[:, mask] = out
    return everybody


def _planes(table: Int64Array) -> tuple[NDArray[np.void], list[list[bytes]]]:
    """Return the head of each row, and the bytes of its values, all lowest ones first."""
    heads = np.zeros(len(table), dtype=_ROW_HEAD)
    planes: list[list[bytes]] = [[] for _ in table]
    if not table.size:
        return heads, planes
    heads["base"] = base = table.min(axis=1)
    above = (table - base[:, None]).view(np.uint64)
    for place, bits in enumerate(np.bitwise_or.reduce(above, axis=1).tolist()):
        if not bits:
            continue
        shift = (bits & -bits).bit_length() - 1
        width = -(-(bits >> shift).bit_length() // 8)
        heads[place] = base[place], shift, width
        plain = (above[place] >> np.uint64(shift)).astype("<u8", copy=False)
        of_value = plain.view(np.uint8).reshape(-1, 8)
        planes[place] = [of_value[:, byte].tobytes() for byte in range(width)]
    return heads, planes


def _deflate(front: bytes, heads: NDArray[np.void], planes: list[list[bytes]]) -> bytes:
    # Noise holds no strings that come twice: codes and runs find all, in half the time.
    deflater = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL, zlib.Z_RLE)
    parts = [deflater.compress(front + heads.tobytes())]
    for plane in chain.from_iterable(planes):
        if len(plane) >= _LEAST_CUT:
            parts.append(deflater.flush(zlib.Z_BLOCK))
        parts.append(deflater.compress(plane))
    parts.append(deflater.flush())
    return b"".join(parts)


def _inflate(packed: bytes, out: Int64Array, ranks: int) -> tuple[int, NDArray[np.bool_]]:
    """Fill ``out`` with the rows of a stream; return which is not there, and who has data."""
    plain = zlib.decompress(packed)
    known = out.shape[1]
    at = 1
    mask = np.ones(0, dtype=np.bool_)
    if known < ranks:
        bits = np.frombuffer(plain, dtype=np.uint8, count=-(-ranks // 8), offset=at)
        mask = np.unpackbits(bits, count=ranks).astype(np.bool_)
        at += len(bits)
    heads = np.frombuffer(plain, dtype=_ROW_HEAD, count=len(out), offset=at)
    at += heads.nbytes
    for (base, shift, width), row in zip(heads.tolist(), out, strict=True):
        if not width:
            row[:] = base
            continue
        planes = np.frombuffer(plain, dtype=np.uint8, count=width * known, offset=at)
        at += planes.size
        planes = planes.reshape(width, known)
        total = planes[-1].astype(np.int64)
        for plane in planes[-2::-1]:
            total <<= 8
            total |= plane
        total <<= shift
        np.add(total, base, out=row)
    return plain[0], mask
