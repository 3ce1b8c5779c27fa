"""Chunks of one launch to a bundle of wire v2."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paceline.clock import ClockAnchor, wall_ns
from paceline.errors import WireError
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.follow import Chunk
from paceline.sidecar.pack import groups_of, in_resolution, job_name
from paceline.wire.bundle_codec import encode_bundle, encode_origin
from paceline.wire.bundles import Body, Extra, Member, OriginPart, SharedGroup, relative
from paceline.wire.frames import GroupDef, Pending, Sample
from paceline.wire.planes import encode_units

_LARGEST = (1 << 61) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What one ring gives to a bundle."""

    chunk: Chunk
    frame_seq: int
    with_info: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """A bundle, and how many records of each part no bundle can hold."""

    data: bytes
    refused: list[int]


def pack_bundle(parts: Sequence[Part], stream: str, seq: int) -> Packed:
    """Return ``parts``, all of one launch and node, as an encoded bundle.

    Raises:
        WireError: it is over the limits of the wire; take fewer parts.
    """
    rows = [part.chunk.rows for part in parts]
    try:
        columns, bases = encode_units(in_resolution(b"".join(one.raw for one in rows)))
    except WireError:
        rows = [_encodable(one) for one in rows]
        columns, bases = encode_units(in_resolution(b"".join(one.raw for one in rows)))
    refused = [len(part.chunk.rows) - len(one) for part, one in zip(parts, rows, strict=True)]
    shared: dict[SharedGroup, int] = {}
    members, extras = [], {}
    for place, part in enumerate(parts):
        pending = _pending(part.chunk)
        defined = groups_of(part.chunk, rows[place], pending)
        members.append(_member(part.chunk, defined, shared))
        extra = _extra(part, pending, refused[place])
        if extra != Extra():
            extras[place] = extra
    first, identity = parts[0].chunk, parts[0].chunk.identity
    origin = OriginPart(
        job=job_name(identity.job),
        run_id=identity.run_id,
        attempt=identity.attempt,
        world_size=identity.world_size,
        stream=stream,
        node=first.node,
        members=members,
        groups=list(shared),
    )
    anchors = [_anchor(part.chunk.anchor) for part in parts]
    body = Body(
        origin=encode_origin(origin),
        seq=seq,
        sent_wall_ns=wall_ns(),
        frame_seqs=[part.frame_seq for part in parts],
        counts=[len(one) for one in rows],
        steps=[_within(part.chunk.step) for part in parts],
        read_mono_ns=relative([_within(part.chunk.read_mono_ns) for part in parts]),
        anchor_mono_ns=relative([mono for mono, _ in anchors]),
        anchor_ahead_ns=relative([wall - mono for mono, wall in anchors]),
        bases=bases,
        columns=columns,
        extras=extras,
    )
    return Packed(data=encode_bundle(body), refused=refused)


def _anchor(anchor: ClockAnchor) -> tuple[int, int]:
    return _within(anchor.mono_ns), _within(anchor.wall_ns)


def _within(value: int) -> int:
    """Return ``value``, or nothing where a broken ring holds more than the wire does."""
    return value if 0 <= value < _LARGEST else 0


def _encodable(rows: Rows) -> Rows:
    return Rows(b"".join(pack_record(row) for row in rows if max(row) <= _LARGEST))


def _pending(chunk: Chunk) -> list[Pending]:
    return [
        Pending(p.op, p.group, p.seq, p.step, p.peer, p.payload_bytes, p.start_ns)
        for p in chunk.pending
        if max(p.seq, p.payload_bytes, p.start_ns) <= _LARGEST
    ]


def _member(chunk: Chunk, defined: list[GroupDef], shared: dict[SharedGroup, int]) -> Member:
    groups = []
    for one in defined:
        group = SharedGroup(one.name, one.ranks, one.epoch, one.mesh_dim, one.backend)
        groups.append((one.index, shared.setdefault(group, len(shared))))
    identity = chunk.identity
    return Member(
        rank=identity.rank,
        local_rank=identity.local_rank,
        incarnation=chunk.incarnation,
        producer=identity.producer,
        clock_domain=chunk.clock_domain,
        groups=groups,
    )


def _extra(part: Part, pending: list[Pending], refused: int) -> Extra:
    chunk = part.chunk
    dropped = dict(chunk.dropped)
    if refused:
        dropped["unencodable"] = dropped.get("unencodable", 0) + refused
    return Extra(
        pending=pending,
        dropped=dropped,
        ended=chunk.ended,
        info=chunk.info if part.with_info else {},
        telemetry=[Sample(sample.time_ns, sample.values) for sample in chunk.telemetry],
        control_generation=chunk.control_generation,
        control_step=chunk.control_step,
        checkpoint_mono_ns=chunk.checkpoint_mono_ns,
    )
