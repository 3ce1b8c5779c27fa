"""The static header of a ring file, read with distrust: checksum first, then the geometry."""

from __future__ import annotations

import mmap
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import RingError
from paceline.ring import layout as at
from paceline.ring.layout import RingIdentity


@dataclass(frozen=True, slots=True, kw_only=True)
class Geometry:
    """Whose ring it is and where its parts lie, checked against the size of the file."""

    identity: RingIdentity
    capacity: int
    inflight_offset: int
    inflight_slots: int
    meta_offset: int
    meta_bytes: int
    records_offset: int


def read_header(mapped: mmap.mmap | bytes, path: Path) -> Geometry:
    """Return what the header in ``mapped`` says.

    Raises:
        RingError: it is no ring, of an unknown version, corrupt, or longer than its file.
    """
    if mapped[:8] != at.MAGIC:
        raise RingError(f"{path} begins with {mapped[:8]!r}, not {at.MAGIC!r}: it is no ring")
    fields = at.STATIC.unpack_from(mapped)
    version = fields[1]
    if version != at.VERSION:
        raise RingError(
            f"{path} is ring version {version}; this reader knows {at.VERSION}: "
            "update the paceline of the sidecar"
        )
    stored = at.U32.unpack_from(mapped, at.STATIC_CRC_OFFSET)[0]
    if fields[3] != at.BYTE_ORDER_MARK or stored != zlib.crc32(mapped[: at.STATIC_CRC_OFFSET]):
        raise RingError(f"the header of {path} does not match its checksum: it is corrupt")
    record_bytes, capacity, inflight_offset, inflight_slots = fields[4:8]
    meta_offset, meta_bytes, records_offset = fields[8:11]
    parts_fit = (
        record_bytes == at.RECORD_BYTES
        and capacity >= 1
        and inflight_offset % 8 == 0
        and inflight_offset + inflight_slots * at.INFLIGHT_BYTES <= len(mapped)
        and meta_offset + meta_bytes <= len(mapped)
        and records_offset + capacity * record_bytes <= len(mapped)
    )
    if not parts_fit:
        raise RingError(
            f"{path} has {len(mapped)} bytes, fewer than its header promises: it is truncated"
        )
    return Geometry(
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
