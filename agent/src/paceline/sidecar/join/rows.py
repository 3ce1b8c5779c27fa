"""The bytes of records whose release is the host's, before and after the join."""

from __future__ import annotations

import struct

from paceline.ring import layout as at
from paceline.vocabulary import Flag

_FLAGS_OFFSET = 60
_TIMES = struct.Struct("<QQ")
_HOST_RETURN = int(Flag.HOST_RETURN)
_UNMARKED = bytes(byte for byte in range(256) if not byte & _HOST_RETURN)
_MARK_OF = bytes(1 if byte & _HOST_RETURN else 0 for byte in range(256))
_KEPT = bytes(0 if byte & _HOST_RETURN else 0xFF for byte in range(256))
_WITHOUT_MARK = bytes(byte & ~_HOST_RETURN for byte in range(256))


def has_calls(raw: bytes | bytearray) -> bool:
    """Whether the end of any record is only when its call came back to the host."""
    return bool(raw[_FLAGS_OFFSET :: at.RECORD_BYTES].translate(None, _UNMARKED))


def find_calls(raw: bytes) -> list[int]:
    """Return the offsets of the records whose end is when their call came back to the host."""
    marks = raw[_FLAGS_OFFSET :: at.RECORD_BYTES].translate(_MARK_OF)
    offsets = []
    number = marks.find(1)
    while number >= 0:
        offsets.append(number * at.RECORD_BYTES)
        number = marks.find(1, number + 1)
    return offsets


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


def with_device_times(raw: bytes, start_ns: int, end_ns: int, *, partial: bool) -> bytes:
    """Return one record with what was measured on the device; its call stays its issue."""
    (flags,) = at.U32.unpack_from(raw, _FLAGS_OFFSET)
    flags = (flags & ~_HOST_RETURN) | Flag.GPU_TIME | (Flag.PARTIAL if partial else 0)
    issued = raw[24:32] if any(raw[24:32]) else raw[0:8]
    return (
        _TIMES.pack(start_ns, end_ns) + raw[16:24] + issued + raw[32:_FLAGS_OFFSET]
        + at.U32.pack(flags) + raw[at.RECORD_CRC_OFFSET :]
    )  # fmt: skip
