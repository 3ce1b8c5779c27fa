"""The C writer of a ring behind the methods of the Python one, so that one test serves both."""

from __future__ import annotations

import ctypes as c
import json
import os
from collections.abc import Mapping
from pathlib import Path

from paceline.errors import RingError
from paceline.ring import RingIdentity
from paceline.ring import layout as at

LIBRARY_ENV = "TEST_PLUGIN_LIBRARY"


class Identity(c.Structure):
    _fields_ = [
        ("job", c.c_char_p), ("run_id", c.c_char_p), ("node", c.c_char_p),
        ("boot_id", c.c_char_p), ("producer", c.c_char_p),
        ("time_namespace", c.c_uint64), ("created_wall_ns", c.c_uint64),
        ("created_mono_ns", c.c_uint64), ("attempt", c.c_uint32), ("world_size", c.c_uint32),
        ("pid", c.c_uint32), ("rank", c.c_int32), ("local_rank", c.c_int32),
        ("incarnation", c.c_uint8 * 16),
    ]  # fmt: skip


RECORD = [c.c_uint8, c.c_uint8, c.c_uint16, c.c_uint64, c.c_uint32, c.c_int32, *[c.c_uint64] * 5,
          c.c_uint32]  # fmt: skip
BEGIN = [c.c_uint8, c.c_uint16, c.c_uint64, c.c_uint32, c.c_int32, c.c_uint64, c.c_uint64,
         c.c_uint32]  # fmt: skip


class CRing:
    """A ring written by the functions of plugin/api.c."""

    def __init__(
        self,
        directory: Path,
        identity: RingIdentity,
        capacity: int = at.DEFAULT_CAPACITY,
        library: Path | None = None,
    ) -> None:
        calls = c.CDLL(str(library or os.environ[LIBRARY_ENV]))
        calls.paceline_ring_open.restype = c.c_void_p
        calls.paceline_ring_path.restype = c.c_char_p
        for name, types in (
            ("path", []), ("record", RECORD), ("begin", BEGIN), ("finish", [c.c_int]),
            ("meta", [c.c_char_p]), ("heartbeat", [c.c_uint64]), ("anchor", []), ("control", []),
            ("close", []),
        ):  # fmt: skip
            getattr(calls, f"paceline_ring_{name}").argtypes = [c.c_void_p, *types]
        values = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in (
                (field[0], getattr(identity, field[0])) for field in Identity._fields_
            )
            if name != "incarnation"
        }
        who = Identity(**values)
        who.incarnation[:] = identity.incarnation
        error = c.c_int(0)
        place = os.fsencode(directory)
        self._calls = calls
        self._ring = calls.paceline_ring_open(place, c.byref(who), capacity, c.byref(error))
        if not self._ring:
            raise RingError(f"cannot make a ring in {directory}: {os.strerror(error.value)}")
        self.path = Path(os.fsdecode(calls.paceline_ring_path(self._ring)))

    def record(
        self,
        kind: int, code: int, group: int, seq: int, step: int, peer: int, payload_bytes: int,
        start_ns: int, end_ns: int, join_ns: int = 0, issue_ns: int = 0, flags: int = 0,
    ) -> None:  # fmt: skip
        self._calls.paceline_ring_record(
            self._ring, kind, code, group, seq, step, peer, payload_bytes, start_ns, end_ns,
            join_ns, issue_ns, flags,
        )  # fmt: skip

    def begin(
        self, op: int, group: int, seq: int, step: int, peer: int, payload_bytes: int,
        start_ns: int, flags: int = 0,
    ) -> int:  # fmt: skip
        slot: int = self._calls.paceline_ring_begin(
            self._ring, op, group, seq, step, peer, payload_bytes, start_ns, flags
        )
        return slot

    def finish(self, slot: int) -> None:
        self._calls.paceline_ring_finish(self._ring, slot)

    def meta(self, entry: Mapping[str, object]) -> bool:
        text = json.dumps(entry, separators=(",", ":")).encode()
        return bool(self._calls.paceline_ring_meta(self._ring, text))

    def heartbeat(self, step: int) -> None:
        self._calls.paceline_ring_heartbeat(self._ring, step)

    def anchor(self) -> None:
        self._calls.paceline_ring_anchor(self._ring)

    def control(self) -> int:
        """Return the level that the control block asks for, -1 for nothing; it is applied."""
        level: int = self._calls.paceline_ring_control(self._ring)
        return level

    def close(self) -> None:
        if self._ring:
            self._calls.paceline_ring_close(self._ring)
            self._ring = None
