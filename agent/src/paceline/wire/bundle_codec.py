"""Bundles to bytes and back. The header is that of frames, with version 2 (``codec``)."""

from __future__ import annotations

import re

import msgspec

from paceline.errors import WireError
from paceline.wire.bundles import (
    MAX_MEMBERS,
    Body,
    Bundle,
    BundleColumn,
    Member,
    Origin,
    OriginPart,
    SharedGroup,
)
from paceline.wire.codec import BUNDLE_VERSION, decode_frame, pack_content, unpack_content
from paceline.wire.columns import RESOLUTION_NS, Column, decode, encode
from paceline.wire.frames import (
    COLUMN_NAMES,
    MAX_GROUPS_PER_FRAME,
    MAX_PENDING_PER_FRAME,
    MAX_RECORDS_PER_FRAME,
    MAX_SAMPLES_PER_FRAME,
    Frame,
    GroupDef,
)

BASED_COLUMNS = ("start_ns", "seq", "step")
"""Their values are differences to the row before, across members; the first to its base."""
TIME_COLUMNS = frozenset({"start_ns", "end_after_ns", "join_after_ns", "issue_before_ns"})
"""In units of ``RESOLUTION_NS``."""
_NOISY_COLUMNS = ("start_ns", "end_after_ns")
_NOISY_PLANES = 2
"""Bytes of a time that hold most of what it tells; each gets a block of the stream."""
_LEAST_CUT = 64
"""Records: below, the codes of more blocks take what they save."""
_LIMIT = 1 << 62
"""Of times, steps and bases: sums of two fit 64 bits."""
_KEPT_ORIGINS = 8192
_KEPT_ORIGIN_BYTES = 32 << 10
_HEX = re.compile(r"[0-9a-f]{32}\Z")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
_encoder = msgspec.msgpack.Encoder()
_body_decoder = msgspec.msgpack.Decoder(Body)
_origin_decoder = msgspec.msgpack.Decoder(OriginPart)
_origins: dict[bytes, Origin] = {}


def encode_origin(part: OriginPart) -> bytes:
    """Return what bundles carry as their origin."""
    return _encoder.encode(part)


def encode_bundle(body: Body) -> bytes:
    """Return a bundle as bytes.

    Raises:
        WireError: it is over the limits; put fewer members into it.
    """
    raw = _encoder.encode(body)
    return pack_content(raw, BUNDLE_VERSION, _cuts(raw, body))


def _cuts(raw: bytes, body: Body) -> list[int]:
    """Return where bytes of another kind begin in ``raw``: identities, noise, what follows noise.

    One code for all of them would be right for none: the lowest byte of a time is any of 256, the
    highest nearly always the same.
    """
    count = sum(body.counts)
    if count < _LEAST_CUT:
        return []
    at = raw.index(body.origin) + len(body.origin)
    cuts = [at]
    for name, column in zip(COLUMN_NAMES, body.columns, strict=True):
        if len(column.data) != column.width * count:
            continue
        at = raw.index(column.data, at)
        if name in _NOISY_COLUMNS:
            cuts += [at + plane * count for plane in range(min(column.width, _NOISY_PLANES) + 1)]
        at += len(column.data)
    return cuts


def decode_any(packed: bytes) -> Frame | Bundle:
    """Return the frame or the bundle in ``packed`` (header included).

    Raises:
        WireError: see ``decode_frame``.
    """
    if packed[4:5] == b"\x02":
        return decode_bundle(packed)
    return decode_frame(packed)


def decode_bundle(packed: bytes) -> Bundle:
    """Return the bundle in ``packed`` (header included).

    Raises:
        WireError: checksum, size or content do not fit.
    """
    raw = unpack_content(packed, BUNDLE_VERSION)
    try:
        body = _body_decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a bundle cannot be decoded: {error}") from error
    origin = _origins.get(body.origin)
    if origin is None:
        origin = _read_origin(body.origin)
    return Bundle(origin=origin, body=body, count=_check(body, len(origin.members)))


def frames_of(bundle: Bundle, *, records: bool = True) -> list[Frame]:
    """Return what each member would have sent by itself, as a frame of wire v1.

    Args:
        bundle: of which.
        records: whether the frames get their columns; without them it is done soon.
    """
    origin, body = bundle.origin, bundle.body
    values = {
        name: _values(name, column, body.bases, bundle.count)
        for name, column in zip(COLUMN_NAMES, body.columns, strict=True)
        if records
    }
    mono_ns, wall_ns = bundle.anchors()
    read_ns = bundle.read_mono_ns()
    frames, first = [], 0
    for place, member in enumerate(origin.members):
        end = first + body.counts[place]
        extra = body.extras.get(place)
        columns = {
            name: encode(of_all[first:end], delta=name in BASED_COLUMNS)
            for name, of_all in values.items()
        }
        frames.append(
            Frame(
                job=origin.job, run_id=origin.run_id, attempt=origin.attempt, rank=member.rank,
                world_size=origin.world_size, incarnation=member.incarnation,
                frame_seq=body.frame_seqs[place], node=origin.node, producer=member.producer,
                count=body.counts[place], columns=columns,
                groups=list(origin.definitions[place]), local_rank=member.local_rank,
                clock_domain=member.clock_domain, anchor_mono_ns=mono_ns[place],
                anchor_wall_ns=wall_ns[place], sent_wall_ns=body.sent_wall_ns,
                step=body.steps[place], read_mono_ns=read_ns[place],
                **(msgspec.structs.asdict(extra) if extra is not None else {}),
            )
        )  # fmt: skip
        first = end
    return frames


def frames_in(packed: bytes) -> list[Frame]:
    """Return the frame in ``packed``, or those of the members of a bundle.

    Raises:
        WireError: see ``decode_any``.
    """
    found = decode_any(packed)
    return frames_of(found) if isinstance(found, Bundle) else [found]


def _values(name: str, column: BundleColumn, bases: list[int], count: int) -> list[int]:
    data = column.data
    if len(data) == column.width != column.width * count:
        data = b"".join(data[byte : byte + 1] * count for byte in range(column.width))
    based = name in BASED_COLUMNS
    values = decode(Column(width=column.width, delta=based, data=data), count)
    if based:
        base = bases[BASED_COLUMNS.index(name)]
        values = [value + base for value in values]
    if name not in TIME_COLUMNS:
        return values
    return [-1 if value == -1 else value * RESOLUTION_NS for value in values]


def _read_origin(raw: bytes) -> Origin:
    """Return the origin in ``raw``, and keep it: the next bundle most likely repeats it."""
    try:
        part = _origin_decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the origin of a bundle cannot be decoded: {error}") from error
    _check_origin(part)
    members, groups = part.members, part.groups
    try:
        definitions = tuple(
            tuple(_definition(index, groups[place]) for index, place in member.groups)
            for member in members
        )
    except IndexError:
        raise WireError("a member of a bundle names a group that is not in it") from None
    origin = Origin(
        job=part.job, run_id=part.run_id, attempt=part.attempt, world_size=part.world_size,
        stream=part.stream, node=part.node, members=tuple(members), definitions=definitions,
        ranks=tuple(one.rank for one in members),
        incarnations=tuple(one.incarnation for one in members),
        longest={
            "run_id": len(part.run_id), "node": len(part.node),
            "producer": max(len(one.producer) for one in members),
            "clock_domain": max(len(one.clock_domain) for one in members),
            "group": max((max(len(g.name), len(g.ranks)) for g in groups), default=0),
        },
    )  # fmt: skip
    if len(raw) <= _KEPT_ORIGIN_BYTES:
        if len(_origins) >= _KEPT_ORIGINS:
            _origins.clear()
        _origins[raw] = origin
    return origin


def _definition(index: int, group: SharedGroup) -> GroupDef:
    return GroupDef(
        index=index, name=group.name, ranks=group.ranks, epoch=group.epoch,
        mesh_dim=group.mesh_dim, backend=group.backend,
    )  # fmt: skip


def _check_origin(part: OriginPart) -> None:
    members = part.members
    if not 1 <= len(members) <= MAX_MEMBERS:
        raise WireError(f"a bundle of {len(members)} members; 1 to {MAX_MEMBERS} are allowed")
    if not 1 <= part.world_size <= 1_000_000 or part.attempt < 0:
        raise WireError(f"world size {part.world_size} or attempt of a bundle is out of range")
    if not _JOB.match(part.job):
        raise WireError(f"job {part.job[:200]!r} is not 1 to 128 of A-Z a-z 0-9 . _ -")
    if not _HEX.match(part.stream) or not all(_HEX.match(one.incarnation) for one in members):
        raise WireError("the stream or an incarnation of a bundle is not 32 hex digits")
    if len({part.stream, *(one.incarnation for one in members)}) != len(members) + 1:
        raise WireError("a bundle names an incarnation twice")
    if any(_is_wrong(member, part) for member in members):
        raise WireError("a rank or a group of a member of a bundle is out of range")


def _is_wrong(member: Member, part: OriginPart) -> bool:
    return (
        not 0 <= member.rank < part.world_size
        or len(member.groups) > MAX_GROUPS_PER_FRAME
        or any(place < 0 for _, place in member.groups)
    )


def _check(body: Body, members: int) -> int:
    """Return how many records there are."""
    lists = (
        body.frame_seqs, body.counts, body.steps, body.read_mono_ns, body.anchor_mono_ns,
        body.anchor_ahead_ns,
    )  # fmt: skip
    if any(len(one) != members for one in lists) or len(body.bases) != len(BASED_COLUMNS):
        raise WireError(f"a list of a bundle of {members} members is of another length")
    count = sum(body.counts)
    if min(body.counts) < 0 or count > MAX_RECORDS_PER_FRAME:
        raise WireError(f"bundle of {count} records; the limit is {MAX_RECORDS_PER_FRAME}")
    if body.seq < 0 or min(body.frame_seqs) < 0:
        raise WireError("a number of a bundle is below 0")
    wide = (*lists[2:], body.bases)
    if max(map(max, wide)) >= _LIMIT or min(map(min, wide)) <= -_LIMIT:
        raise WireError("a time, a step or a base of a bundle is out of range")
    if len(body.columns) != len(COLUMN_NAMES):
        raise WireError(f"a bundle of {len(body.columns)} columns; it has {len(COLUMN_NAMES)}")
    for column in body.columns:
        width, size = column.width, len(column.data)
        if width not in (1, 2, 4, 8) or (size != width * count and (size != width or not count)):
            raise WireError(f"a column of width {width} has {size} bytes for {count} rows")
    for place, extra in body.extras.items():
        if not 0 <= place < members:
            raise WireError(f"a bundle of {members} members tells more of member {place}")
        if (
            len(extra.pending) > MAX_PENDING_PER_FRAME
            or len(extra.telemetry) > MAX_SAMPLES_PER_FRAME
        ):
            raise WireError(
                f"a member of {len(extra.pending)} pending collectives and "
                f"{len(extra.telemetry)} samples; the limits are {MAX_PENDING_PER_FRAME} and "
                f"{MAX_SAMPLES_PER_FRAME}"
            )
    return count
