"""The Python writer of a ring: no system call, no lock, nothing kept per record.

Several threads of one process may write: an index is reserved with
``next(count)``, which the interpreter does not interrupt, and the commit word
of a record is stored last, so a reader never takes half a record for a whole
one. Its C twin is ``plugin/ring.h``.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import mmap
import os
import re
import secrets
import struct
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from paceline.clock import mono_ns, take_anchor, wall_ns
from paceline.errors import ConfigError, RingError
from paceline.ring import layout as at
from paceline.ring.layout import RingIdentity
from paceline.ring.private import make_private
from paceline.ring.replicas import (
    DIGEST_BYTES,
    DIGEST_SLOTS,
    DIGESTS_OFFSET,
    ReplicaDigest,
    pack_digest,
)

_WORD = 8
_HEAD_WORD = at.HEAD_OFFSET // _WORD
_CRC_WORD = at.RECORD_CRC_OFFSET // _WORD
_COMMIT_WORD = at.RECORD_COMMIT_OFFSET // _WORD
_HEADER_BYTES = at.HEADER_BYTES
_RECORDS_WORD = at.RECORDS_OFFSET // _WORD
_RECORD_WORDS = at.RECORD_BYTES // _WORD
_BODY_BYTES = at.RECORD_CRC_OFFSET
_INFLIGHT_BYTES = at.INFLIGHT_BYTES
_INFLIGHT_WORD = at.HEADER_BYTES // _WORD
_INFLIGHT_WORDS = at.INFLIGHT_BYTES // _WORD
_pack = at.RECORD_OF_FIELDS.pack
_pack_inflight = at.INFLIGHT_OF_FIELDS.pack_into
pack_fields = at.FIELDS.pack
"""Packs payload_bytes, seq, step, peer, group, kind and code: all of a record but its times."""


class RingWriter:
    """Writes one rank's records into one memory-mapped file.

    Args:
        directory: where rings of this node lie; made (mode 0700) when missing.
        identity: who writes; it is put into the header once.
        capacity: how many records the ring holds before the oldest is overwritten.

    Raises:
        RingError: the directory cannot be used, is full, or ``capacity`` is out of range.
    """

    def __init__(
        self, directory: Path, identity: RingIdentity, capacity: int = at.DEFAULT_CAPACITY
    ) -> None:
        size_bytes = at.file_bytes(capacity)
        if capacity < 1 or size_bytes > at.MAX_FILE_BYTES:
            raise RingError(
                f"a ring of {capacity} records takes {size_bytes} bytes; it must hold at least 1 "
                f"and take at most {at.MAX_FILE_BYTES}: choose a smaller capacity"
            )
        self.identity = identity
        self.path = directory / ring_name(identity)
        self._capacity = capacity
        self._file = _create(directory, self.path, size_bytes, identity, capacity)
        self._map = mmap.mmap(self._file.fileno(), size_bytes)
        self._bytes = memoryview(self._map)
        self._words = self._bytes.cast("Q")
        self._next_index = itertools.count()
        self._digests = 0
        self._free_slots = list(range(at.INFLIGHT_SLOTS))
        self._rare = threading.Lock()  # for what happens rarely: metadata, anchors
        self.anchor()

    def record(
        self,
        kind: int,
        code: int,
        group: int,
        seq: int,
        step: int,
        peer: int,
        payload_bytes: int,
        start_ns: int,
        end_ns: int,
        join_ns: int = 0,
        issue_ns: int = 0,
        flags: int = 0,
    ) -> None:
        """Append one record; the oldest is overwritten when the ring is full.

        Times are monotonic ns, 0 where unknown; ``peer`` is a global rank or -1.
        """
        fields = pack_fields(payload_bytes, seq, step, peer, group, kind, code)
        self.append(start_ns, end_ns, join_ns, issue_ns, fields, flags)

    def append(
        self,
        start_ns: int,
        end_ns: int,
        join_ns: int,
        issue_ns: int,
        fields: bytes,
        flags: int,
    ) -> None:
        """Append one record as ``record`` does, for who has its fields packed already."""
        index = next(self._next_index)
        word = _RECORDS_WORD + index % self._capacity * _RECORD_WORDS
        offset, words = word * _WORD, self._words
        words[word + _COMMIT_WORD] = 0
        body = _pack(start_ns, end_ns, join_ns, issue_ns, fields, flags)
        self._map[offset : offset + _BODY_BYTES] = body
        words[word + _CRC_WORD] = crc32(body)
        words[word + _COMMIT_WORD] = words[_HEAD_WORD] = index + 1

    def begin(
        self,
        op: int,
        group: int,
        seq: int,
        step: int,
        peer: int,
        payload_bytes: int,
        start_ns: int,
        flags: int = 0,
    ) -> int:
        """Enter a collective in the in-flight table.

        Returns:
            The slot to give to ``finish``; -1 when the table is full (counted).
        """
        fields = pack_fields(payload_bytes, seq, step, peer, group, 0, op)
        return self.enter(op, fields, start_ns, flags)

    def enter(self, op: int, fields: bytes, start_ns: int, flags: int) -> int:
        """Enter a collective as ``begin`` does, for who has its fields packed already."""
        try:
            slot = self._free_slots.pop()
        except IndexError:
            self.count(at.DROPPED_INFLIGHT_OFFSET)
            return -1
        _pack_inflight(
            self._map, _HEADER_BYTES + slot * _INFLIGHT_BYTES,
            0, start_ns, fields, op, 0, flags, 0,
        )  # fmt: skip
        self._words[_INFLIGHT_WORD + slot * _INFLIGHT_WORDS] = 1
        return slot

    def finish(self, slot: int) -> None:
        """Take a collective out of the in-flight table; -1 is ignored."""
        if slot >= 0:
            self._words[_INFLIGHT_WORD + slot * _INFLIGHT_WORDS] = 0
            self._free_slots.append(slot)

    def complete(
        self,
        slot: int,
        start_ns: int,
        end_ns: int,
        join_ns: int,
        fields: bytes,
        flags: int,
    ) -> None:
        """Append the record of a collective that was issued at its start, and ``finish`` it.

        Both at once, and flat, because it is on the path of every collective.
        """
        try:
            index = next(self._next_index)
            word = _RECORDS_WORD + index % self._capacity * _RECORD_WORDS
            offset, words = word * _WORD, self._words
            words[word + _COMMIT_WORD] = 0
            body = _pack(start_ns, end_ns, join_ns, start_ns, fields, flags)
            self._map[offset : offset + _BODY_BYTES] = body
            words[word + _CRC_WORD] = crc32(body)
            words[word + _COMMIT_WORD] = words[_HEAD_WORD] = index + 1
        finally:
            if slot >= 0:
                words[_INFLIGHT_WORD + slot * _INFLIGHT_WORDS] = 0
                self._free_slots.append(slot)

    def meta(self, entry: Mapping[str, object]) -> bool:
        """Append a JSON object (a group, the torch version) to the metadata; False when full."""
        text = json.dumps(entry, separators=(",", ":")).encode()
        size = at.pad8(at.META_ENTRY.size + len(text))
        with self._rare:
            used = self._words[at.META_HEAD_OFFSET // _WORD]
            if used + size > at.META_BYTES:
                self.count(at.DROPPED_META_OFFSET)
                return False
            offset = at.META_OFFSET + used
            at.META_ENTRY.pack_into(self._map, offset, len(text), crc32(text))
            body = offset + at.META_ENTRY.size
            self._bytes[body : body + len(text)] = text
            self._words[at.META_HEAD_OFFSET // _WORD] = used + size
        return True

    def digest(self, one: ReplicaDigest) -> None:
        """Store a replica digest; the oldest of the table is overwritten. One thread may call."""
        offset = DIGESTS_OFFSET + self._digests % DIGEST_SLOTS * DIGEST_BYTES
        self._words[offset // _WORD] = 0
        self._map[offset + _WORD : offset + DIGEST_BYTES] = pack_digest(one)
        self._digests += 1
        self._words[offset // _WORD] = self._digests

    def heartbeat(self, step: int) -> None:
        """Store that the writer lives, and at which step it is."""
        self._words[at.STEP_OFFSET // _WORD] = step
        self._words[at.HEARTBEAT_OFFSET // _WORD] = mono_ns()

    def saving(self, since_ns: int) -> None:
        """Store since when a checkpoint is being saved; 0: none is."""
        self._words[at.CHECKPOINT_OFFSET // _WORD] = since_ns

    def anchor(self) -> None:
        """Store a fresh pair of monotonic and wall-clock time."""
        with self._rare:
            anchor = take_anchor()
            count = self._words[at.ANCHOR_COUNT_OFFSET // _WORD]
            slot = at.ANCHOR_SLOTS_OFFSET + count % 2 * at.ANCHOR.size
            self._words[slot // _WORD] = anchor.mono_ns
            self._words[slot // _WORD + 1] = anchor.wall_ns
            self._words[at.ANCHOR_COUNT_OFFSET // _WORD] = count + 1

    def control_generation(self) -> int:
        """Return which setting the sidecar asks for; 0: none yet."""
        return self._words[at.CONTROL_OFFSET // _WORD]

    def control(self) -> bytes:
        """Return the control block, with its checksum (``ring.control`` reads it)."""
        return self._map[at.CONTROL_OFFSET : at.CONTROL_CRC_OFFSET + at.U32.size]

    def applied(self, generation: int, step: int) -> None:
        """Store which setting is followed, and from which step on."""
        self._words[at.APPLIED_STEP_OFFSET // _WORD] = step
        self._words[at.APPLIED_GENERATION_OFFSET // _WORD] = generation

    def mapping(self) -> tuple[int, int, int]:
        """Return what another writer in this process needs: descriptor, bytes, capacity."""
        return self._file.fileno(), len(self._map), self._capacity

    def count(self, counter_offset: int) -> None:
        """Add one to a counter of the header."""
        self._words[counter_offset // _WORD] += 1

    def close(self) -> None:
        """Mark a clean end and let go of the file, which stays for the sidecar."""
        if self._map.closed:
            return
        self._words[at.STATE_OFFSET // _WORD] = at.STATE_CLOSED
        self._words.release()
        self._bytes.release()
        self._map.close()
        self._file.close()


def ring_name(identity: RingIdentity) -> str:
    """Return the file name of a ring: readable, unique by incarnation, never a path."""
    job = re.sub(r"[^A-Za-z0-9._-]", "_", identity.job)[:80]
    return (
        f"{job}.r{identity.rank}.a{identity.attempt}."
        f"{identity.incarnation.hex()[:12]}.{identity.producer}{at.SUFFIX}"
    )


def _create(
    directory: Path, path: Path, size_bytes: int, identity: RingIdentity, capacity: int
) -> BinaryIO:
    """Make the file whole under another name, lock it, then give it its own name."""
    unfinished = path.with_suffix(f".{secrets.token_hex(4)}.tmp")
    try:
        make_private(directory)
        file = open(unfinished, "x+b", opener=_private)  # noqa: SIM115  it carries the lock
    except ConfigError as error:
        raise RingError(str(error)) from error
    except OSError as error:
        raise RingError(
            f"cannot make a ring in {directory}: {error}; set PACELINE_RUNTIME_DIR to a "
            "directory that this user can write"
        ) from error
    try:
        # Without this a full /dev/shm would be a SIGBUS in the middle of training.
        os.posix_fallocate(file.fileno(), 0, size_bytes)
        file.write(static_header(identity, capacity))
        file.seek(at.STATE_OFFSET)
        file.write(struct.pack("<QQ", at.STATE_RUNNING, identity.created_mono_ns))
        file.flush()
        # A POSIX lock tells whether the writer lives; a forked child does not inherit it.
        fcntl.lockf(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(unfinished, path)
    except (OSError, ValueError, struct.error) as error:
        file.close()
        unfinished.unlink(missing_ok=True)
        raise RingError(
            f"cannot make a ring of {size_bytes} bytes in {directory}: {error}; free space there "
            "or set PACELINE_RUNTIME_DIR"
        ) from error
    return file


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def static_header(identity: RingIdentity, capacity: int) -> bytes:
    """Return the static part of a header, with its checksum (512 bytes)."""
    fields = at.STATIC.pack(
        at.MAGIC, at.VERSION, 0, at.BYTE_ORDER_MARK,
        at.RECORD_BYTES, capacity, at.HEADER_BYTES, at.INFLIGHT_SLOTS,
        at.META_OFFSET, at.META_BYTES, at.RECORDS_OFFSET,
        identity.rank, identity.local_rank, identity.world_size, identity.attempt, identity.pid,
        identity.created_wall_ns, identity.created_mono_ns, identity.incarnation,
        identity.node.encode(), identity.job.encode(), identity.run_id.encode(),
        identity.boot_id.encode(), identity.time_namespace, identity.producer.encode(),
    )  # fmt: skip
    padded = fields.ljust(at.STATIC_CRC_OFFSET, b"\0")
    return padded + at.U32.pack(crc32(padded))


def new_identity(
    *,
    job: str,
    run_id: str,
    attempt: int,
    rank: int,
    local_rank: int,
    world_size: int,
    node: str,
    boot_id: str,
    time_namespace: int,
    producer: str,
) -> RingIdentity:
    """Return the identity of this process with a fresh incarnation and the present times."""
    return RingIdentity(
        job=job,
        run_id=run_id,
        attempt=attempt,
        rank=rank,
        local_rank=local_rank,
        world_size=world_size,
        node=node,
        pid=os.getpid(),
        incarnation=secrets.token_bytes(16),
        boot_id=boot_id,
        time_namespace=time_namespace,
        created_wall_ns=wall_ns(),
        created_mono_ns=mono_ns(),
        producer=producer,
    )
