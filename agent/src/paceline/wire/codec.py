"""Frames to bytes and back: a header that is checked before anything is decompressed."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from paceline.errors import WireError
from paceline.wire import columns
from paceline.wire.dictionary import DICTIONARY
from paceline.wire.frames import (
    COLUMN_NAMES,
    DELTA_COLUMNS,
    MAX_GROUPS_PER_FRAME,
    MAX_PENDING_PER_FRAME,
    MAX_RECORDS_PER_FRAME,
    MAX_SAMPLES_PER_FRAME,
    Frame,
)

MAGIC = b"PLWF"
VERSION = 1
BUNDLE_VERSION = 2
"""Frames of all ranks of a node in one (``bundle_codec``)."""
CONTENT_TYPE = "application/vnd.paceline.frames"
HEADER = struct.Struct("<4sBBHIII")
"""magic, version, compression, 0, packed bytes, unpacked bytes, CRC-32 of packed."""
ZLIB = 1
ZLIB_DICTIONARY = 2
"""zlib that begins with ``DICTIONARY``: what agents send since they know it."""
_KNOWN = (ZLIB, ZLIB_DICTIONARY)
_LEVEL = 6
"""10 us a frame more than level 1, for which the disk gets 0.3 to 2 bytes a collective less."""
MAX_PACKED_BYTES = 1 << 20
MAX_UNPACKED_BYTES = 4 << 20

_INCARNATION = re.compile(r"[0-9a-f]{32}\Z")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A stretch of bytes that is no frame, where it began, and why."""

    offset: int
    reason: str


def encode_frame(frame: Frame) -> bytes:
    """Return ``frame`` as bytes: header, then the compressed msgpack map."""
    return pack_content(_encoder.encode(frame), VERSION)


def pack_content(raw: bytes, version: int, cuts: Sequence[int] = ()) -> bytes:
    """Return a header, and ``raw`` compressed.

    Args:
        raw: the content.
        version: of the header.
        cuts: ascending offsets at which the stream begins another block, with a code of its own.
            It is one stream all the same: who reads it sees nothing of them.

    Raises:
        WireError: it is over the limits.
    """
    deflater = zlib.compressobj(_LEVEL, zdict=DICTIONARY)
    parts: list[bytes] = []
    for begin, end in pairwise((0, *cuts)):
        parts += deflater.compress(raw[begin:end]), deflater.flush(zlib.Z_BLOCK)
    parts += deflater.compress(raw[cuts[-1] if cuts else 0 :]), deflater.flush()
    packed = b"".join(parts)
    if len(raw) > MAX_UNPACKED_BYTES or len(packed) > MAX_PACKED_BYTES:
        raise WireError(
            f"a frame of {len(raw)} bytes ({len(packed)} packed) is over the limit of "
            f"{MAX_UNPACKED_BYTES} ({MAX_PACKED_BYTES} packed); put fewer records into it"
        )
    head = (MAGIC, version, ZLIB_DICTIONARY, 0, len(packed), len(raw), zlib.crc32(packed))
    return HEADER.pack(*head) + packed


def split_frames(body: bytes) -> Iterator[bytes | Rejected]:
    """Cut a request body into packed frames, without decompressing any.

    What cannot be understood is yielded as ``Rejected``; the cut goes on behind it
    where the header still tells the length, and ends where it does not.
    """
    offset = 0
    while offset < len(body):
        if len(body) - offset < HEADER.size or body[offset : offset + 4] != MAGIC:
            yield Rejected(offset=offset, reason=f"no frame header at byte {offset}")
            return
        _, version, compression, _, packed_bytes, raw_bytes, _ = HEADER.unpack_from(body, offset)
        end = offset + HEADER.size + packed_bytes
        if end > len(body):
            yield Rejected(offset=offset, reason=f"truncated: {len(body)} bytes, {end} promised")
            return
        if version not in (VERSION, BUNDLE_VERSION):
            reason = f"wire version {version}; this collector knows {BUNDLE_VERSION}: update it"
            yield Rejected(offset=offset, reason=reason)
        elif compression not in _KNOWN:
            yield Rejected(offset=offset, reason=f"unknown compression {compression}")
        elif packed_bytes > MAX_PACKED_BYTES or raw_bytes > MAX_UNPACKED_BYTES:
            reason = (
                f"frame of {packed_bytes} packed, {raw_bytes} unpacked bytes; the limits are "
                f"{MAX_PACKED_BYTES} and {MAX_UNPACKED_BYTES}"
            )
            yield Rejected(offset=offset, reason=reason)
        else:
            yield body[offset:end]
        offset = end


def decode_frame(packed_frame: bytes) -> Frame:
    """Return the frame in ``packed_frame`` (header included).

    Raises:
        WireError: checksum, size, or content do not fit; nothing larger than
            ``MAX_UNPACKED_BYTES`` is ever unpacked.
    """
    raw = unpack_content(packed_frame, VERSION)
    try:
        frame = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a frame cannot be decoded: {error}") from error
    _check(frame)
    return frame


def unpack_content(packed_frame: bytes, wanted: int) -> bytes:
    """Return what ``pack_content`` of version ``wanted`` was given.

    Raises:
        WireError: checksum, version or size do not fit.
    """
    if len(packed_frame) < HEADER.size:
        raise WireError(f"{len(packed_frame)} bytes are too few for a frame")
    magic, version, compression, _, packed_bytes, raw_bytes, crc = HEADER.unpack_from(packed_frame)
    packed = packed_frame[HEADER.size :]
    if magic != MAGIC or version != wanted or compression not in _KNOWN:
        raise WireError(f"not a frame of wire version {wanted}: {packed_frame[:6]!r}")
    if len(packed) != packed_bytes:
        raise WireError(f"frame of {len(packed)} bytes promises {packed_bytes}; it is truncated")
    # 0 would mean "no limit" to zlib.
    if packed_bytes > MAX_PACKED_BYTES or not 1 <= raw_bytes <= MAX_UNPACKED_BYTES:
        raise WireError(
            f"frame of {packed_bytes} packed, {raw_bytes} unpacked bytes; the limits are "
            f"{MAX_PACKED_BYTES} and 1 to {MAX_UNPACKED_BYTES}"
        )
    if zlib.crc32(packed) != crc:
        raise WireError("the checksum of a frame does not match; it is corrupt")
    # A stream says itself whether it needs it.
    inflater = zlib.decompressobj(zdict=DICTIONARY)
    try:
        raw = inflater.decompress(packed, raw_bytes)
        if inflater.unconsumed_tail or not inflater.eof or len(raw) != raw_bytes:
            raise WireError(f"a frame unpacks to another size than the {raw_bytes} bytes promised")
    except zlib.error as error:
        raise WireError(f"a frame cannot be decoded: {error}") from error
    return raw


def encode_rows(rows: Sequence[tuple[int, ...]]) -> dict[str, columns.Column]:
    """Return rows of absolute values in the order of ``ROW_FIELDS`` as the columns of a frame."""
    if not rows:
        return {name: columns.encode(()) for name in COLUMN_NAMES}
    kind, code, group, seq, step, peer, payload, start, end, join, issue, flags = zip(
        *rows, strict=True
    )
    values = {
        "kind": kind, "code": code, "group": group, "seq": seq, "step": step, "peer": peer,
        "payload_bytes": payload, "start_ns": start,
        "end_after_ns": [e - s if e else -1 for s, e in zip(start, end, strict=True)],
        "join_after_ns": [j - s if j else -1 for s, j in zip(start, join, strict=True)],
        "issue_before_ns": [s - i if i else -1 for s, i in zip(start, issue, strict=True)],
        "flags": flags,
    }  # fmt: skip
    return {n: columns.encode(v, delta=n in DELTA_COLUMNS) for n, v in values.items()}


ROW_FIELDS = (
    "kind", "code", "group", "seq", "step", "peer", "payload_bytes",
    "start_ns", "end_ns", "join_ns", "issue_ns", "flags",
)  # fmt: skip


def _check(frame: Frame) -> None:
    if not 0 <= frame.count <= MAX_RECORDS_PER_FRAME:
        raise WireError(f"frame of {frame.count} records; the limit is {MAX_RECORDS_PER_FRAME}")
    for name in COLUMN_NAMES:
        column = frame.columns.get(name)
        if column is None or column.width not in (1, 2, 4, 8):
            raise WireError(f"column {name} is missing or has a width other than 1, 2, 4, 8")
        if len(column.data) != column.width * frame.count:
            raise WireError(
                f"column {name} has {len(column.data)} bytes for {frame.count} rows of "
                f"{column.width}"
            )
    if not 0 <= frame.rank < frame.world_size <= 1_000_000:
        raise WireError(f"rank {frame.rank} of world size {frame.world_size} is out of range")
    if not _INCARNATION.match(frame.incarnation) or frame.frame_seq < 0 or frame.attempt < 0:
        raise WireError("incarnation, frame_seq or attempt of a frame is out of range")
    if not _JOB.match(frame.job):
        raise WireError(f"job {frame.job[:200]!r} is not 1 to 128 of A-Z a-z 0-9 . _ -")
    if len(frame.telemetry) > MAX_SAMPLES_PER_FRAME:
        raise WireError(
            f"frame of {len(frame.telemetry)} samples; the limit is {MAX_SAMPLES_PER_FRAME}"
        )
    if len(frame.groups) > MAX_GROUPS_PER_FRAME or len(frame.pending) > MAX_PENDING_PER_FRAME:
        raise WireError(
            f"frame of {len(frame.groups)} groups and {len(frame.pending)} pending collectives; "
            f"the limits are {MAX_GROUPS_PER_FRAME} and {MAX_PENDING_PER_FRAME}"
        )
