"""What NCCL writes beside its NVTX ranges: communicator, size, ranks; as JSON or as bytes."""

from __future__ import annotations

import struct
from dataclasses import field

import msgspec

from paceline.dataclass import dataclass
from paceline_service.importers.nsys.database import Database

MAX_PAYLOAD_BYTES = 4096
_KEPT = 1 << 14
_HEADER_BYTES = 32
"""Domain, schema, length of the payload, and where it is; 8 bytes each."""
_FORMATS = {
    # Of the entry types that NVTX defines, whole numbers only.
    3: "<h", 4: "<H", 5: "<i", 6: "<I", 7: "<q", 8: "<Q", 9: "<q", 10: "<Q", 11: "<b", 12: "<B",
    13: "<h", 14: "<H", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q", 23: "<Q",
}  # fmt: skip
_NAMES = {
    "NCCL communicator ID": "communicator",
    "Parent NCCL communicator ID": "parent",
    "Message size [bytes]": "payload_bytes",
    "No. of ranks": "size",
    "Rank": "position",
    "CUDA device": "device",
    "Peer rank": "peer",
    "Root": "root",
    "Key": "key",
}
_decode = msgspec.json.Decoder(dict[str, object]).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What is told of one call of NCCL; -1 where it is not told.

    ``communicator`` is a hash that is the same on all its ranks, as signed 64 bits. ``position``
    is the caller's rank within it, ``size`` how many it has; where there is a ``parent`` they are
    those within that, and ``key`` orders the ranks of the new one.
    """

    communicator: int = -1
    parent: int = -1
    key: int = -1
    payload_bytes: int = -1
    size: int = -1
    position: int = -1
    device: int = -1
    peer: int = -1
    root: int = -1


NOTHING = Payload()


@dataclass(slots=True)
class Payloads:
    """Reads the payloads of one file."""

    _entries: dict[tuple[int, int], list[tuple[str, int, str]]] = field(default_factory=dict)
    """By domain and schema: name, offset, and format of each entry."""
    _known: dict[str | bytes, Payload] = field(default_factory=dict)

    @classmethod
    def of(cls, database: Database) -> Payloads:
        """Return a reader with the layouts that the file declares."""
        payloads = cls()
        columns = ["domainId", "schemaId", "name", "type", "offset"]
        for rows in database.rows("NVTX_PAYLOAD_SCHEMA_ENTRIES", columns):
            for domain, schema, name, kind, offset in rows:
                known = _NAMES.get(name) if isinstance(name, str) else None
                if known and type(domain) is int and type(schema) is int and kind in _FORMATS:
                    at = offset if type(offset) is int else 0
                    own = payloads._entries.setdefault((domain, schema), [])
                    own.append((known, at, _FORMATS[kind]))
        return payloads

    def read(self, text: object, data: object) -> Payload:
        """Return what ``jsonText`` or ``binaryData`` tells; nothing where neither does."""
        if isinstance(text, str) and 2 < len(text) <= MAX_PAYLOAD_BYTES:
            told: str | bytes = text
        elif isinstance(data, bytes) and _HEADER_BYTES < len(data) <= MAX_PAYLOAD_BYTES:
            told = data
        else:
            return NOTHING
        # A job says the same few things over and over.
        if told not in self._known:
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[told] = _of_json(told) if isinstance(told, str) else self._of_bytes(told)
        return self._known[told]

    def _of_bytes(self, data: bytes) -> Payload:
        domain, _, schema = struct.unpack_from("<IIQ", data)
        values = {}
        for name, offset, form in self._entries.get((domain, schema), ()):
            at = _HEADER_BYTES + offset
            if offset >= 0 and at + struct.calcsize(form) <= len(data):
                (values[name],) = struct.unpack_from(form, data, at)
        return _payload(values)


def _of_json(text: str) -> Payload:
    try:
        told = _decode(text)
    except (msgspec.DecodeError, RecursionError):
        return NOTHING
    values = {}
    for name, known in _NAMES.items():
        value = told.get(name)
        if isinstance(value, str):
            # Some versions write large numbers with separators of thousands.
            digits = value.replace(",", "")
            value = int(digits) if digits.isdecimal() and len(digits) <= 20 else None
        if type(value) is int:
            values[known] = value
    return _payload(values)


def _payload(values: dict[str, int]) -> Payload:
    hashes = {name: _signed(values.pop(name, -1)) for name in ("communicator", "parent")}
    plain = {name: value if 0 <= value < 1 << 60 else -1 for name, value in values.items()}
    return Payload(**hashes, **plain)


def _signed(value: int) -> int:
    if not -(1 << 63) <= value < 1 << 64:
        return -1
    return value - (1 << 64) if value >= 1 << 63 else value
