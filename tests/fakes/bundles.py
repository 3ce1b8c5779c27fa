"""Frames of several ranks put into one bundle, as the sidecar of their node would send them."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paceline.ring import Record
from paceline.ring.rows import pack_record
from paceline.sidecar.pack import in_resolution
from paceline.wire.bundle_codec import encode_bundle, encode_origin
from paceline.wire.bundles import Body, Extra, Member, OriginPart, SharedGroup, relative
from paceline.wire.codec import decode_frame, split_frames
from paceline.wire.columns import decode
from paceline.wire.frames import Frame
from paceline.wire.planes import encode_units

STREAM = "5e" * 16


def records_of(frame: Frame) -> list[Record]:
    """Return the records of a frame with absolute times, 0 where one is unknown."""
    of = {name: decode(column, frame.count) for name, column in frame.columns.items()}
    found = []
    for place in range(frame.count):
        row = {name: values[place] for name, values in of.items()}
        start = row["start_ns"]
        end, join, issue = (row[n] for n in ("end_after_ns", "join_after_ns", "issue_before_ns"))
        found.append(
            Record(
                row["kind"], row["code"], row["group"], row["seq"], row["step"], row["peer"],
                row["payload_bytes"], start, start + end if end >= 0 else 0,
                start + join if join >= 0 else 0, start - issue if issue >= 0 else 0, row["flags"],
            )
        )  # fmt: skip
    return found


def bundle_of(frames: Sequence[Frame], seq: int, stream: str = STREAM) -> bytes:
    """Return ``frames``, of one launch and node, as bundle number ``seq`` of ``stream``."""
    shared: dict[SharedGroup, int] = {}
    members, extras = [], {}
    for place, one in enumerate(frames):
        groups = [
            (g.index, shared.setdefault(
                SharedGroup(g.name, g.ranks, g.epoch, g.mesh_dim, g.backend), len(shared)))
            for g in one.groups
        ]  # fmt: skip
        members.append(
            Member(one.rank, one.local_rank, one.incarnation, one.producer, one.clock_domain,
                   groups)
        )  # fmt: skip
        extra = Extra(**{name: getattr(one, name) for name in Extra.__struct_fields__})
        if extra != Extra():
            extras[place] = extra
    first = frames[0]
    origin = OriginPart(
        job=first.job, run_id=first.run_id, attempt=first.attempt, world_size=first.world_size,
        stream=stream, node=first.node, members=members, groups=list(shared),
    )  # fmt: skip
    raw = b"".join(pack_record(row) for one in frames for row in records_of(one))
    columns, bases = encode_units(in_resolution(raw))
    return encode_bundle(
        Body(
            origin=encode_origin(origin), seq=seq, sent_wall_ns=first.sent_wall_ns,
            frame_seqs=[one.frame_seq for one in frames], counts=[one.count for one in frames],
            steps=[one.step for one in frames],
            read_mono_ns=relative([one.read_mono_ns for one in frames]),
            anchor_mono_ns=relative([one.anchor_mono_ns for one in frames]),
            anchor_ahead_ns=relative([one.anchor_wall_ns - one.anchor_mono_ns for one in frames]),
            bases=bases, columns=columns, extras=extras,
        )
    )  # fmt: skip


def bundled(bodies: Iterable[bytes]) -> Iterator[bytes]:
    """Yield bodies of frames with those of each node in one bundle."""
    sent: Counter[str] = Counter()
    for body in bodies:
        of_node: dict[str, list[Frame]] = {}
        for part in split_frames(body):
            assert isinstance(part, bytes)
            frame = decode_frame(part)
            of_node.setdefault(f"{frame.job}/{frame.run_id}/{frame.node}", []).append(frame)
        parts = []
        for name, frames in of_node.items():
            stream = hashlib.sha256(name.encode()).hexdigest()[:32]
            parts.append(bundle_of(frames, sent[stream], stream))
            sent[stream] += 1
        yield b"".join(parts)
