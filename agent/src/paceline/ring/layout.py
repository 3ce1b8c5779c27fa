"""Ring v1: where every byte of a ring file lies (docs/ring.md; C twin: plugin/ring.h).

A ring is one file of one writer. All integers are little-endian. The static
part of the header is written once and carries a checksum; the dynamic part is
made of aligned 8-byte words that their writer stores whole.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

MAGIC = b"PACERING"
VERSION = 1
BYTE_ORDER_MARK = 0x0A0B0C0D
SUFFIX = ".ring"
MAX_FILE_BYTES = 4 * 1024 * 1024

HEADER_BYTES = 4096
STATIC = struct.Struct("<8sHHI IIIIIII iiIII QQ 16s 64s128s64s40sQ16s")
"""magic, version, flags, byte order mark; record_bytes, capacity, inflight_offset,
inflight_slots, meta_offset, meta_bytes, records_offset; rank, local_rank, world_size,
attempt, pid; created_wall_ns, created_mono_ns; incarnation; node, job, run_id, boot_id,
time_namespace, producer."""
STATIC_CRC_OFFSET = 508
U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")

# The dynamic words. The writer owns all but the control block, which is the sidecar's.
HEAD_OFFSET = 512
"""Records ever written; a hint: the commit word of a record decides."""
META_HEAD_OFFSET = 520
"""Bytes of metadata written."""
STATE_OFFSET = 528
STATE_RUNNING = 1
STATE_CLOSED = 2
HEARTBEAT_OFFSET = 536
"""When the writer last proved alive, monotonic ns."""
STEP_OFFSET = 544
DROPPED_INFLIGHT_OFFSET = 552
"""Collectives that found the in-flight table full (their records are still written)."""
HOOK_ERRORS_OFFSET = 560
"""Exceptions that hooks caught; training went on."""
DROPPED_META_OFFSET = 568
"""Metadata entries that did not fit."""
ANCHOR_COUNT_OFFSET = 576
ANCHOR_SLOTS_OFFSET = 584
ANCHOR = struct.Struct("<QQ")
"""mono_ns, wall_ns. Anchor n lies in slot n % 2; the count is stored after it."""
CONTROL_OFFSET = 640
"""What the sidecar asks of the writer: generation of the setting, stored last; 0: none yet."""
CONTROL = struct.Struct("<QQII")
"""generation, effective_step, level (index into ``settings.LEVELS``), stride. Its CRC-32 lies in
the word behind it; a writer that finds another one looks again later."""
CONTROL_CRC_OFFSET = 664
APPLIED_GENERATION_OFFSET = 680
"""The generation that the writer follows, and the first step that it holds for."""
APPLIED_STEP_OFFSET = 688
CONTROL_REFUSED_OFFSET = 696
"""Control blocks that made no sense to the writer."""

PLUGIN_COUNTERS_OFFSET = 704
PLUGIN_COUNTERS = (
    "errors",
    "lost_records",
    "lost_times",
    "partial",
    "stale",
    "foreign",
    "contended",
    "lost_communicators",
)
"""What the NCCL plugin counts in its ring, a word each (docs/plugin.md); only ever added to."""

CHECKPOINT_OFFSET = 1024
"""Since when the training thread has been saving a checkpoint, monotonic ns; 0: it does not. Its
phase is a record only when it is over."""

INFLIGHT_SLOTS = 64
INFLIGHT = struct.Struct("<QQQQIiHBBII")
"""commit (1 = pending, 0 = free), start_ns, payload_bytes, seq, step, peer, group, op, 0, flags,
0."""
INFLIGHT_BYTES = 64

META_OFFSET = HEADER_BYTES + INFLIGHT_SLOTS * INFLIGHT_BYTES
META_BYTES = 128 * 1024
RECORDS_OFFSET = META_OFFSET + META_BYTES
META_ENTRY = struct.Struct("<II")
"""Length and CRC-32 of the JSON text that follows; the next entry starts at a multiple of 8."""

RECORD = struct.Struct("<QQQQQQIiHBBI")
"""start_ns, end_ns, join_ns, issue_ns, payload_bytes, seq, step, peer, group, kind, code,
flags: what the CRC-32 at byte 64 of a record covers."""
FIELDS = struct.Struct("<QQIiHBB")
"""payload_bytes, seq, step, peer, group, kind, code: what of a record does not depend on times.
It is packed once, as both tables hold it: ``RECORD_OF_FIELDS`` is ``RECORD`` with it, and
``INFLIGHT_OF_FIELDS`` is ``INFLIGHT`` with as much of it as that has."""
RECORD_OF_FIELDS = struct.Struct("<QQQQ28sI")
INFLIGHT_OF_FIELDS = struct.Struct("<QQ26sBBII")
RECORD_CRC_OFFSET = 64
RECORD_COMMIT_OFFSET = 72
"""The commit word: index of the record + 1, stored last."""
RECORD_BYTES = 80
DEFAULT_CAPACITY = 16384

assert RECORD.size == RECORD_CRC_OFFSET
assert STATIC.size <= STATIC_CRC_OFFSET
assert INFLIGHT.size <= INFLIGHT_BYTES
assert CONTROL_OFFSET + CONTROL.size == CONTROL_CRC_OFFSET


@dataclass(frozen=True, slots=True, kw_only=True)
class RingIdentity:
    """Who writes a ring. ``incarnation`` is 16 random bytes, one per process and ring."""

    job: str
    run_id: str
    attempt: int
    rank: int
    local_rank: int
    world_size: int
    node: str
    pid: int
    incarnation: bytes
    boot_id: str
    time_namespace: int
    created_wall_ns: int
    created_mono_ns: int
    producer: str


class Record(NamedTuple):
    """One collective, phase or step of one rank; times are monotonic ns, 0 where unknown.

    A tuple, because thousands a second become rows of a frame: the order is wire v1's.
    """

    kind: int
    code: int
    group: int
    seq: int
    step: int
    peer: int
    payload_bytes: int
    start_ns: int
    end_ns: int
    join_ns: int
    issue_ns: int
    flags: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A collective that has arrived and was not released yet."""

    op: int
    group: int
    seq: int
    step: int
    peer: int
    payload_bytes: int
    start_ns: int
    flags: int


def pad8(size_bytes: int) -> int:
    """Round ``size_bytes`` up to a multiple of 8."""
    return (size_bytes + 7) & ~7


def file_bytes(capacity: int) -> int:
    """Return the size of a ring file that holds ``capacity`` records."""
    return RECORDS_OFFSET + capacity * RECORD_BYTES
