"""The bytes of records whose release is the host's, before and after the join."""

from __future__ import annotations

import struct

from paceline.ring import layout as at
from paceline.vocabulary import Flag, RecordKind

FIELDS = struct.Struct(at.RECORD.format + "8xQ")
"""The fields, and the commit word: the index in the ring + 1."""
_KIND_OFFSET = 58
_FLAGS_OFFSET = 60
_TIMES = struct.Struct("<QQ")
_HOST_RETURN = int(Flag.HOST_RETURN)
_GPU_TIME = int(Flag.GPU_TIME)
_PARTIAL_TIME = int(Flag.GPU_TIME | Flag.PARTIAL)
_UNMARKED = bytes(byte for byte in range(256) if not byte & _HOST_RETURN)
_MARKED = bytes(int(bool(byte & _HOST_RETURN)) for byte in range(256))
_COLLECTIVE = bytes(int(byte == RecordKind.COLLECTIVE) for byte in range(256))
_KEPT = bytes(0 if byte & _HOST_RETURN else 0xFF for byte in range(256))
_WITHOUT_MARK = bytes(byte & ~_HOST_RETURN for byte in range(256))


def has_calls(raw: bytes | bytearray) -> bool:
    """Whether the end of any record is only when its call came back to the host."""
    return bool(raw[_FLAGS_OFFSET :: at.RECORD_BYTES].translate(None, _UNMARKED))


def marked(raw: bytes | bytearray) -> bytes:
    """Return a byte for each record: 1 where its end is only when its call came back."""
    return bytes(raw[_FLAGS_OFFSET :: at.RECORD_BYTES].translate(_MARKED))


def marked_calls(raw: bytes | bytearray) -> bytes:
    """Return a byte for each record: 1 where it is a call that is to be joined."""
    return both(marked(raw), raw[_KIND_OFFSET :: at.RECORD_BYTES].translate(_COLLECTIVE))


def both(left: bytes | bytearray, right: bytes | bytearray) -> bytes:
    """Return 1 where two equally long strings of 0 and 1 have a 1."""
    found = int.from_bytes(left, "little") & int.from_bytes(right, "little")
    return found.to_bytes(len(left), "little")


def without_return(raw: bytes) -> bytes:
    """Return records with their end unknown where it was only when the call came back."""
    if not has_calls(raw):
        return raw
    changed = bytearray(raw)
    flags = raw[_FLAGS_OFFSET :: at.RECORD_BYTES]
    kept = int.from_bytes(flags.translate(_KEPT), "little")
    for offset in range(8, 16):
        column = int.from_bytes(raw[offset :: at.RECORD_BYTES], "little") & kept
        changed[offset :: at.RECORD_BYTES] = column.to_bytes(len(flags), "little")
    changed[_FLAGS_OFFSET :: at.RECORD_BYTES] = flags.translate(_WITHOUT_MARK)
    return bytes(changed)


def put_device_times(
    raw: bytearray, offset: int, start_ns: int, end_ns: int, *, partial: bool
) -> None:
    """Put into the record at ``offset`` what was measured; its call stays its issue."""
    _TIMES.pack_into(raw, offset, start_ns, end_ns)
    raw[offset + _FLAGS_OFFSET] = raw[offset + _FLAGS_OFFSET] & ~_HOST_RETURN | (
        _PARTIAL_TIME if partial else _GPU_TIME
    )


def put_unknown_end(raw: bytearray, offset: int) -> None:
    """Say in the record at ``offset`` that its end is unknown."""
    at.U64.pack_into(raw, offset + 8, 0)
    raw[offset + _FLAGS_OFFSET] &= ~_HOST_RETURN
