"""A chunk to a frame of wire v1."""

from __future__ import annotations

import re

from paceline.clock import wall_ns
from paceline.errors import WireError
from paceline.ring import layout as at
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.follow import Chunk
from paceline.wire.codec import encode_frame
from paceline.wire.frames import MAX_GROUPS_PER_FRAME, Frame, GroupDef, Pending, Sample
from paceline.wire.planes import encode_raw

_LARGEST = (1 << 63) - 1
_TIMES = 4
"""A record begins with so many words of 8 bytes that are times (docs/ring.md)."""


def pack(chunk: Chunk, frame_seq: int, *, with_info: bool) -> tuple[bytes, int]:
    """Return ``chunk`` as an encoded frame, and how many of its records no frame can hold."""
    rows = chunk.rows
    try:
        columns = encode_raw(in_resolution(rows.raw))
    except WireError:
        rows = Rows(b"".join(pack_record(row) for row in rows if max(row) <= _LARGEST))
        columns = encode_raw(in_resolution(rows.raw))
    dropped = dict(chunk.dropped)
    refused = len(chunk.rows) - len(rows)
    if refused:
        dropped["unencodable"] = dropped.get("unencodable", 0) + refused
    pending = [
        Pending(p.op, p.group, p.seq, p.step, p.peer, p.payload_bytes, p.start_ns)
        for p in chunk.pending
        if max(p.seq, p.payload_bytes, p.start_ns) <= _LARGEST
    ]
    identity = chunk.identity
    frame = Frame(
        job=job_name(identity.job),
        run_id=identity.run_id,
        attempt=identity.attempt,
        rank=identity.rank,
        world_size=identity.world_size,
        incarnation=chunk.incarnation,
        frame_seq=frame_seq,
        node=chunk.node,
        producer=identity.producer,
        count=len(rows),
        columns=columns,
        groups=groups_of(chunk, rows, pending),
        local_rank=identity.local_rank,
        clock_domain=chunk.clock_domain,
        anchor_mono_ns=chunk.anchor.mono_ns,
        anchor_wall_ns=chunk.anchor.wall_ns,
        sent_wall_ns=wall_ns(),
        step=chunk.step,
        pending=pending,
        dropped=dropped,
        ended=chunk.ended,
        info=chunk.info if with_info else {},
        telemetry=[Sample(sample.time_ns, sample.values) for sample in chunk.telemetry],
        control_generation=chunk.control_generation,
        control_step=chunk.control_step,
        read_mono_ns=chunk.read_mono_ns,
        checkpoint_mono_ns=chunk.checkpoint_mono_ns,
    )
    return encode_frame(frame), refused


def in_resolution(raw: bytes) -> bytearray:
    """Return records with their times rounded down to ``RESOLUTION_NS``, the lowest byte to 0.

    What was equal or in order stays so.
    """
    out = bytearray(raw)
    zeros = bytes(len(raw) // at.RECORD_BYTES)
    for word in range(_TIMES):
        out[8 * word :: at.RECORD_BYTES] = zeros
    return out


def job_name(name: str) -> str:
    """Return ``name`` with what a job name may not hold replaced."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name)[:128] or "unnamed"


def groups_of(chunk: Chunk, rows: Rows, pending: list[Pending]) -> list[GroupDef]:
    """Return the groups that ``rows`` and ``pending`` name."""
    used = rows.groups()
    used.update(one.group for one in pending)
    known = sorted(used & chunk.groups.keys())[:MAX_GROUPS_PER_FRAME]
    return [
        GroupDef(
            index=index,
            name=group.name,
            ranks=group.ranks,
            epoch=group.epoch,
            mesh_dim=group.mesh_dim,
            backend=group.backend,
        )
        for index in known
        for group in (chunk.groups[index],)
    ]
