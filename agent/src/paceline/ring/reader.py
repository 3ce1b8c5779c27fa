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
from paceline.ring.layout import InFlight, Record, RingIdentity

_FLOCK = struct.Struct("hhqqi4x")
_TORN_PATIENCE_POLLS = 20
"""How many polls a record may stay uncommitted before it counts as torn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one poll of a ring gave: whole records in order, and what was lost before them."""

    records: list[Record]
    overwritten: int
    torn: int


class RingReader:
    """Reads one ring file from another process.

    Raises:
        RingError: the file is no ring, is truncated, corrupt, or of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = open(path, "rb")  # noqa: SIM115  lives as long as the reader
        except OSError as error:
            raise RingError(f"cannot open ring {path}: {error}") from error
        try:
            size_bytes = os.fstat(self._file.fileno()).st_size
            if size_bytes < at.HEADER_BYTES:
                raise RingError(
                    f"{path} has {size_bytes} bytes; a ring has at least {at.HEADER_BYTES}: "
                    "it is truncated or no ring; remove it"
                )
            if size_bytes > at.MAX_FILE_BYTES:
                raise RingError(
                    f"{path} has {size_bytes} bytes; a ring has at most {at.MAX_FILE_BYTES}"
                )
            self._map = mmap.mmap(self._file.fileno(), size_bytes, prot=mmap.PROT_READ)
        except (RingError, OSError, ValueError) as error:
            self._file.close()
            raise error if isinstance(error, RingError) else RingError(f"cannot map {path}: {error}") from error
        try:
            self._geometry = _read_static(self._map, path)
        except RingError:
            self.close()
            raise
        self.identity = self._geometry.identity
        self._words = memoryview(self._map).cast("Q")
        self._tail = 0
        self._stalled_polls = 0
        self._meta_tail = 0

    def poll(self, limit: int = 4096) -> Batch:
        """Return the records written since the last poll, at most ``limit`` of them."""
        geometry = self._geometry
        overwritten = torn = 0
        records: list[Record] = []
        head = self._words[at.HEAD_OFFSET // 8]
        # The slot that the writer may be filling now is not readable: keep one slot away.
        oldest = head - geometry.capacity + 1
        if self._tail < oldest:
            overwritten += oldest - self._tail
            self._tail = oldest
        while self._tail < head and len(records) < limit:
            offset = geometry.records_offset + self._tail % geometry.capacity * at.RECORD_BYTES
            raw = self._map[offset : offset + at.RECORD_BYTES]
            (commit,) = at.U64.unpack_from(raw, at.RECORD_COMMIT_OFFSET)
            if commit > self._tail + 1:
                overwritten += 1  # the writer came round while we read
            elif commit != self._tail + 1:
                self._stalled_polls += 1
                if self._stalled_polls < _TORN_PATIENCE_POLLS and self.writer_alive():
                    break  # another thread of the writer is still filling it
                torn += 1
            elif at.U32.unpack_from(raw, at.RECORD_CRC_OFFSET)[0] != zlib.crc32(
                raw[: at.RECORD_CRC_OFFSET]
            ):
                torn += 1
            else:
                records.append(_record(raw))
            self._stalled_polls = 0
            self._tail += 1
        return Batch(records=records, overwritten=overwritten, torn=torn)

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
            if self._words[offset // 8] != 1:
                continue
            _, start_ns, payload_bytes, seq, step, peer, group, op, _, flags, _ = (
                at.INFLIGHT.unpack_from(raw)
            )
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
        words = getattr(self, "_words", None)
        if words is not None:
            words.release()
        self._map.close()
        self._file.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Geometry:
    identity: RingIdentity
    capacity: int
    inflight_offset: int
    inflight_slots: int
    meta_offset: int
    meta_bytes: int
    records_offset: int


def _read_static(mapped: mmap.mmap, path: Path) -> _Geometry:
    if mapped[:8] != at.MAGIC:
        raise RingError(f"{path} begins with {mapped[:8]!r}, not {at.MAGIC!r}: it is no ring")
    fields = at.STATIC.unpack_from(mapped)
    version = fields[1]
    if version > at.VERSION:
        raise RingError(
            f"{path} is ring version {version}; this reader knows up to {at.VERSION}: "
            "update the paceline of the sidecar"
        )
    stored = at.U32.unpack_from(mapped, at.STATIC_CRC_OFFSET)[0]
    if fields[3] != at.BYTE_ORDER_MARK or stored != zlib.crc32(mapped[: at.STATIC_CRC_OFFSET]):
        raise RingError(f"the header of {path} does not match its checksum: it is corrupt")
    (record_bytes, capacity, inflight_offset, inflight_slots, meta_offset, meta_bytes, records_offset) = fields[4:11]  # fmt: skip
    parts_fit = (
        record_bytes == at.RECORD_BYTES
        and 1 <= capacity
        and inflight_offset % 8 == 0
        and inflight_offset + inflight_slots * at.INFLIGHT_BYTES <= len(mapped)
        and meta_offset + meta_bytes <= len(mapped)
        and records_offset + capacity * record_bytes <= len(mapped)
    )
    if not parts_fit:
        raise RingError(
            f"{path} has {len(mapped)} bytes, fewer than its header promises: it is truncated"
        )
    return _Geometry(
        identity=_identity(fields[11:]),
        capacity=capacity,
        inflight_offset=inflight_offset,
        inflight_slots=inflight_slots,
        meta_offset=meta_offset,
        meta_bytes=meta_bytes,
        records_offset=records_offset,
    )


def _identity(fields: tuple[Any, ...]) -> RingIdentity:
    rank, local_rank, world_size, attempt, pid, created_wall_ns, created_mono_ns = fields[:7]
    incarnation, node, job, run_id, boot, time_namespace, producer = fields[7:]
    return RingIdentity(
        job=_text(job),
        run_id=_text(run_id),
        attempt=attempt,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        node=_text(node),
        pid=pid,
        incarnation=incarnation,
        boot_id=_text(boot),
        time_namespace=time_namespace,
        created_wall_ns=created_wall_ns,
        created_mono_ns=created_mono_ns,
        producer=_text(producer),
    )


def _text(field: bytes) -> str:
    return field.rstrip(b"\0").decode("utf-8", errors="replace")


def _json_object(text: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None


def _record(raw: bytes) -> Record:
    (start_ns, end_ns, join_ns, issue_ns, payload_bytes, seq, step, peer, group, kind, code, flags) = at.RECORD.unpack_from(raw)  # fmt: skip
    return Record(
        kind=kind,
        code=code,
        group=group,
        seq=seq,
        step=step,
        peer=peer,
        payload_bytes=payload_bytes,
        start_ns=start_ns,
        end_ns=end_ns,
        join_ns=join_ns,
        issue_ns=issue_ns,
        flags=flags,
    )
