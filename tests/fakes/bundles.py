"""Frames of several ranks put into one bundle, as the sidecar of their node would send them."""

from __future__ import annotations

import hashlib
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from paceline.ring import Record
from paceline.ring.rows import pack_record
from paceline.sidecar.pack import in_resolution
from paceline.wire.bundle_codec import encode_bundle, encode_origin
from paceline.wire.bundles import Body, Extra, Member, OriginPart, SharedGroup, relative
from paceline.wire.codec import decode_frame, encode_rows, split_frames
from paceline.wire.columns import decode
from paceline.wire.frames import Frame, GroupDef
from paceline.wire.planes import encode_units

STREAM = "5e" * 16
NODE = 8
"""Ranks of a ``node_bundle``."""
DP = GroupDef(index=0, name="dp", ranks=f"0-{NODE - 1}", backend="nccl")


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


def node_bundle(seq: int, *, groups: Sequence[GroupDef] = (DP,), collectives: int = 20) -> bytes:
    """Return what a node sends after a step, with times that nothing repeats."""
    rng = random.Random(seq)
    frames = []
    for rank in range(NODE):
        starts = sorted(rng.randrange(1 << 22) << 8 for _ in range(collectives))
        rows = [
            (1, 1, 0, place, seq, -1, 1 << 20, start, start + (rng.randrange(1 << 14) << 8), 0, 0,
             rank)
            for place, start in enumerate(starts)
        ]  # fmt: skip
        frames.append(
            Frame(
                job="j", run_id="r", attempt=0, rank=rank, world_size=NODE, local_rank=rank,
                incarnation=random.Random(rank).randbytes(16).hex(), frame_seq=seq, node="n",
                producer="hooks", count=len(rows), columns=encode_rows(rows), groups=list(groups),
                clock_domain="boot", anchor_mono_ns=1000 + rank, anchor_wall_ns=10**9 + rank,
                sent_wall_ns=10**12 + seq, step=seq, read_mono_ns=seq << 30,
            )
        )  # fmt: skip
    return bundle_of(frames, seq)
