"""The reader of a ring: trusts nothing, reports what it could not read, and goes on."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.clock import ClockAnchor
from paceline.errors import RingError
from paceline.ring import layout as at
from paceline.ring.header import read_header
from paceline.ring.layout import InFlight, Record
from paceline.ring.replicas import DIGESTS_OFFSET, ReplicaDigest, read_digests
from paceline.ring.rows import Rows, whole_records

_FLOCK = struct.Struct("hhqqi4x")
TORN_PATIENCE_POLLS = 20
"""How many polls a record may stay uncommitted while its writer lives, before it counts as torn."""
_LONGEST_STRETCH = 4096
"""How many records are copied at once; fewer for a while behind one that is not whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one poll of a ring gave: whole records in order, and what was lost before them."""

    rows: Rows
    overwritten: int
    torn: int

    @property
    def records(self) -> list[Record]:
        """The records as tuples."""
        return list(self.rows)


class RingReader:
    """Reads one ring file from another process.

    Never open a ring within the process that writes it: closing the file there would take the
    writer's lock away, which is what tells that it lives.

    Raises:
        RingError: the file is no ring, is truncated, corrupt, or of another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115  lives as long as the reader
        except OSError as error:
            raise RingError(f"cannot open ring {path}: {error}") from error
        try:
            self._map = _map(self._file.fileno(), path)
        except RingError:
            self._file.close()
            raise
        try:
            self._geometry = read_header(self._map, path)
        except RingError:
            self._map.close()
            self._file.close()
            raise
        self.identity = self._geometry.identity
        self._view = memoryview(self._map)
        self._words = self._view.cast("Q")
        self._tail = 0
        self._stalled_polls = 0
        self._stretch = _LONGEST_STRETCH
        self._meta_tail = 0

    @property
    def tail(self) -> int:
        """Index of the record that the next poll begins with."""
        return self._tail

    def seek(self, index: int) -> None:
        """Let the next poll begin with record ``index``: earlier ones were read by somebody."""
        self._tail = index
        self._stalled_polls = 0

    def poll(self, limit: int = 4096) -> Batch:
        """Return the records written since the last poll, at most ``limit`` of them.

        Raises:
            RingError: somebody truncated the file since it was opened.
        """
        self._check_size()
        geometry = self._geometry
        overwritten = torn = 0
        parts: list[bytes] = []
        head = self._words[at.HEAD_OFFSET // 8]
        # The slot that the writer may be filling now is not readable: keep one slot away.
        oldest = head - geometry.capacity + 1
        if self._tail < oldest:
            overwritten += oldest - self._tail
            self._tail = oldest
        room = limit
        while room > 0:
            if part := self._whole_stretch(min(room, head - self._tail)):
                parts.append(part)
                room -= len(part) // at.RECORD_BYTES
                continue
            offset = geometry.records_offset + self._tail % geometry.capacity * at.RECORD_BYTES
            raw = self._map[offset : offset + at.RECORD_BYTES]
            (commit,) = at.U64.unpack_from(raw, at.RECORD_COMMIT_OFFSET)
            if self._tail >= head and commit != self._tail + 1:
                break  # with several threads, or a writer killed in between, head lags behind
            if commit > self._tail + 1:
                overwritten += 1  # the writer came round while we read
            elif not whole_records(raw, self._tail):
                # A thread of the writer may still be filling it, or its stores arrive out of order.
                self._stalled_polls += 1
                if self._stalled_polls < TORN_PATIENCE_POLLS and self.writer_alive():
                    break
                torn += 1
            else:
                parts.append(raw)
                room -= 1
            self._stalled_polls = 0
            self._tail += 1
        return Batch(rows=Rows(b"".join(parts)), overwritten=overwritten, torn=torn)

    def _whole_stretch(self, limit: int) -> bytes:
        """Return the whole records that lie next, before the ring's end and the first bad one."""
        geometry = self._geometry
        slot = self._tail % geometry.capacity
        count = min(limit, geometry.capacity - slot, self._stretch)
        if self._stretch <= 1:  # one is left to the slow way, which tells what is wrong with it
            self._stretch = 2
            return b""
        if count <= 1:
            return b""
        offset = geometry.records_offset + slot * at.RECORD_BYTES
        raw = self._map[offset : offset + count * at.RECORD_BYTES]
        whole = whole_records(raw, self._tail)
        self._stretch = min(2 * self._stretch, _LONGEST_STRETCH) if whole == count else 1
        if whole:
            self._tail += whole
            self._stalled_polls = 0
        return raw[: whole * at.RECORD_BYTES]

    def meta(self) -> tuple[list[dict[str, Any]], int]:
        """Return the metadata entries since the last call, and how many were corrupt."""
        geometry = self._geometry
        head = min(self._words[at.META_HEAD_OFFSET // 8], geometry.meta_bytes)
        entries: list[dict[str, Any]] = []
        corrupt = 0
        while self._meta_tail + at.META_ENTRY.size <= head:
            offset = geometry.meta_offset + self._meta_tail
            length, crc = at.META_ENTRY.unpack_from(self._map, offset)
            size = at.pad8(at.META_ENTRY.size + length)
            if self._meta_tail + size > head:
                corrupt += 1
                self._meta_tail = head
                break
            text = self._map[offset + at.META_ENTRY.size : offset + at.META_ENTRY.size + length]
            self._meta_tail += size
            entry = _json_object(text) if zlib.crc32(text) == crc else None
            if entry is None:
                corrupt += 1
            else:
                entries.append(entry)
        return entries, corrupt

    def inflight(self) -> list[InFlight]:
        """Return the collectives that have arrived and were not released."""
        found = []
        for slot in range(self._geometry.inflight_slots):
            offset = self._geometry.inflight_offset + slot * at.INFLIGHT_BYTES
            if self._words[offset // 8] != 1:
                continue
            raw = self._map[offset : offset + at.INFLIGHT_BYTES]
            if raw != self._map[offset : offset + at.INFLIGHT_BYTES]:
                continue  # it is being replaced: whatever it was has been released
            commit, start_ns, payload_bytes, seq, step, peer, group, op, _, flags, _ = (
                at.INFLIGHT.unpack_from(raw)
            )
            if commit == 1:
                found.append(
                    InFlight(
                        op=op,
                        group=group,
                        seq=seq,
                        step=step,
                        peer=peer,
                        payload_bytes=payload_bytes,
                        start_ns=start_ns,
                        flags=flags,
                    )
                )
        return found

    def anchor(self) -> ClockAnchor:
        """Return the newest pair of monotonic and wall-clock time."""
        count = self._words[at.ANCHOR_COUNT_OFFSET // 8]
        slot = (at.ANCHOR_SLOTS_OFFSET + max(count - 1, 0) % 2 * at.ANCHOR.size) // 8
        return ClockAnchor(mono_ns=self._words[slot], wall_ns=self._words[slot + 1])

    def word(self, offset: int) -> int:
        """Return a dynamic word of the header, for example ``layout.STEP_OFFSET``."""
        return self._words[offset // 8]

    def digests(self, first: int) -> tuple[list[ReplicaDigest], int, int]:
        """Return the replica digests from number ``first`` on (``ring.replicas.read_digests``)."""
        if not (first or self._words[DIGESTS_OFFSET // 8]):  # most rings never have one
            return [], 0, 0
        return read_digests(lambda offset, size: self._map[offset : offset + size], first)

    @property
    def closed_by_writer(self) -> bool:
        """Whether the writer said goodbye."""
        return self._words[at.STATE_OFFSET // 8] == at.STATE_CLOSED

    def writer_alive(self) -> bool:
        """Whether the writing process still holds its lock; right across pid namespaces."""
        query = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        try:
            answer = fcntl.fcntl(self._file.fileno(), fcntl.F_GETLK, query)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOLCK):
                return True
            raise
        return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)

    def close(self) -> None:
        """Unmap the file."""
        self._words.release()
        self._view.release()
        self._map.close()
        self._file.close()

    def _check_size(self) -> None:
        # Reading a page that is gone would be a SIGBUS.
        size_bytes = os.fstat(self._file.fileno()).st_size
        if size_bytes < len(self._map):
            raise RingError(
                f"{self.path} has {size_bytes} bytes and had {len(self._map)}: it was truncated"
            )


def _map(fd: int, path: Path) -> mmap.mmap:
    size_bytes = os.fstat(fd).st_size
    if not at.HEADER_BYTES <= size_bytes <= at.MAX_FILE_BYTES:
        raise RingError(
            f"{path} has {size_bytes} bytes; a ring has {at.HEADER_BYTES} to {at.MAX_FILE_BYTES}: "
            "it is truncated or no ring; remove it"
        )
    try:
        return mmap.mmap(fd, size_bytes // 8 * 8, prot=mmap.PROT_READ)
    except (OSError, ValueError) as error:
        raise RingError(f"cannot map {path}: {error}") from error


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
        json.dumps(entry, ensure_ascii=False).encode()  # half a surrogate pair fits no frame
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None
