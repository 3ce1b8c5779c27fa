"""Wrote the files in tests/contract/golden, once. A new version of a format adds files.

Run as ``python -m tests.contract.make_golden``; it refuses to replace a file that exists.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.event_log import GroupNames, LogGroup, LogHeader, LogRank, header_line, rank_line
from paceline.event_log import record_line as line_of
from paceline.ring import Record, RingIdentity, RingWriter
from paceline.ring import layout as at
from paceline.ring.rows import pack_record
from paceline.sidecar.pack import in_resolution
from paceline.wire.bundle_codec import encode_bundle, encode_origin
from paceline.wire.bundles import Body, Extra, Member, OriginPart, SharedGroup
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef, Pending, Sample
from paceline.wire.planes import encode_units

GOLDEN = Path(__file__).parent / "golden"
IDENTITY = RingIdentity(
    job="golden-job",
    run_id="run-7",
    attempt=2,
    rank=3,
    local_rank=1,
    world_size=8,
    node="node-ä",
    pid=4242,
    incarnation=bytes(range(16)),
    boot_id="0f0e0d0c-0b0a-4908-8706-050403020100",
    time_namespace=4026531834,
    created_wall_ns=1_790_000_000_000_000_000,
    created_mono_ns=1_000_000_000,
    producer="hooks",
)
# kind, code, group, seq, step, peer, payload_bytes, start, end, join, issue, flags
ROWS = (
    (2, 1, 0, 0, 0, -1, 0, 1_000_000_100, 1_000_000_900, 0, 0, 0),
    (1, 1, 0, 0, 0, -1, 1_048_576, 1_000_001_000, 1_000_021_000, 1_000_002_000, 1_000_001_000, 0),
    (1, 6, 1, 0, 0, 5, 4096, 1_000_030_000, 1_000_040_000, 0, 1_000_030_000, 1),
    (1, 10, 1, 0, 0, 7, 1 << 40, 1_000_050_000, 0, 0, 0, 18),
    (3, 0, 0, 0, 0, -1, 0, 1_000_000_000, 1_000_060_000, 0, 0, 0),
    (1, 1, 65535, (1 << 62), 4_294_967_295, 999_999, 0, 1 << 62, (1 << 62) + 5, 0, 0, 63),
)
PENDING = (2, 1, 17, 1, 4, 512, 1_000_070_000)
GROUPS = (
    {"group": 0, "name": "world", "ranks": "0-7", "epoch": 0, "mesh_dim": "", "backend": "gloo"},
    {"group": 1, "name": "dp", "ranks": "1-7:2", "epoch": 1, "mesh_dim": "dp", "backend": "nccl"},
)


def ring(writer_of: Callable[..., Any] = RingWriter) -> bytes:
    """Return a ring file of 4 slots into which 6 records were written."""
    with tempfile.TemporaryDirectory() as directory:
        writer = writer_of(Path(directory), IDENTITY, capacity=4)
        for group in GROUPS:
            writer.meta(group)
        for row in ROWS:
            writer.record(*row)
        writer.begin(*PENDING)
        data = bytearray(writer.path.read_bytes())
        writer.close()
    # In place of the clock of the machine that wrote the file.
    at.U64.pack_into(data, at.ANCHOR_COUNT_OFFSET, 3)
    at.ANCHOR.pack_into(data, at.ANCHOR_SLOTS_OFFSET, 1_000_080_000, 1_789_999_999_000_000_000)
    at.ANCHOR.pack_into(data, at.ANCHOR_SLOTS_OFFSET + at.ANCHOR.size, 1_000_000_000, 1_790_000_000)
    at.U64.pack_into(data, at.STEP_OFFSET, 41)
    at.U64.pack_into(data, at.HEARTBEAT_OFFSET, 1_000_090_000)
    return bytes(data)


def frame() -> bytes:
    """Return one frame with every field set."""
    return encode_frame(
        Frame(
            job="golden-job",
            run_id="run-7",
            attempt=2,
            rank=3,
            world_size=8,
            incarnation=bytes(range(16)).hex(),
            frame_seq=12,
            node="node-ä",
            producer="hooks",
            count=len(ROWS),
            columns=encode_rows(ROWS),
            groups=[
                GroupDef(index=0, name="world", ranks="0-7", backend="gloo"),
                GroupDef(index=1, name="dp", ranks="1-7:2", epoch=1, mesh_dim="dp", backend="nccl"),
            ],
            local_rank=1,
            clock_domain="0f0e0d0c-0b0a-4908-8706-050403020100:4026531834",
            anchor_mono_ns=1_000_080_000,
            anchor_wall_ns=1_789_999_999_000_000_000,
            sent_wall_ns=1_790_000_000_500_000_000,
            step=41,
            pending=[Pending(*PENDING)],
            dropped={"ring_overwritten": 3},
            ended="killed",
            info={"torch": "2.13.0"},
        )
    )


def bundle() -> bytes:
    """Return one bundle of two ranks with every field set."""
    rows = [*ROWS[:5], ROWS[0], ROWS[1]]
    raw = b"".join(pack_record(Record(*row)) for row in rows)
    columns, bases = encode_units(in_resolution(raw))
    origin = OriginPart(
        job="golden-job",
        run_id="run-7",
        attempt=2,
        world_size=8,
        stream=bytes(range(32, 48)).hex(),
        node="node-ä",
        members=[
            Member(3, 1, bytes(range(16)).hex(), "hooks", "boot:4026531834", [(0, 0), (1, 1)]),
            Member(5, 2, bytes(range(16, 32)).hex(), "nccl-plugin", "boot:4026531834", [(0, 0)]),
        ],
        groups=[
            SharedGroup("world", "0-7", backend="gloo"),
            SharedGroup("dp", "1-7:2", 1, "dp", "nccl"),
        ],
    )
    told = Extra(
        pending=[Pending(*PENDING)],
        dropped={"ring_overwritten": 3},
        ended="killed",
        info={"torch": "2.13.0"},
        telemetry=[Sample(1_000_070_000, {"gpu_util": 50, "gpu_name": "H100"})],
        control_generation=2,
        control_step=40,
        checkpoint_mono_ns=1_000_060_000,
    )
    return encode_bundle(
        Body(
            origin=encode_origin(origin),
            seq=5,
            sent_wall_ns=1_790_000_000_500_000_000,
            frame_seqs=[12, 9],
            counts=[5, 2],
            steps=[41, 40],
            read_mono_ns=[1_000_080_000, 250],
            anchor_mono_ns=[1_000_080_000, -512],
            anchor_ahead_ns=[1_789_999_997_999_920_000, 3],
            bases=bases,
            columns=columns,
            extras={0: told, 1: Extra(dropped={"ring_torn": 1})},
        )
    )


def event_log() -> bytes:
    """Return the same records as an event log."""
    names = GroupNames()
    groups = (
        LogGroup(name="dp", ranks=tuple(range(8)), backend="gloo"),
        LogGroup(name="dp", ranks=(1, 3, 5, 7), epoch=1, mesh_dim="dp", backend="nccl"),
    )
    for group in groups:
        names.name_of(group)
    header = LogHeader(
        world_size=8,
        groups=names.groups,
        nodes={3: "node-ä"},
        clock_domains={3: "boot:1"},
        anchors={3: (1_000_080_000, 1_789_999_999_000_000_000)},
        job="golden-job",
        run_id="run-7",
        attempt=2,
        rank=3,
        info={"torch": "2.13.0"},
    )
    lines = [header_line(header)]
    lines += [line_of(3, row, names.name_of(groups[row[2]])) or "" for row in ROWS[:5]]
    lines.append(rank_line(LogRank(rank=3, ended="killed", dropped={"ring_overwritten": 3})))
    return "".join(line + "\n" for line in lines).encode()


def main() -> None:
    """Write what is missing."""
    GOLDEN.mkdir(exist_ok=True)
    made = {
        "ring-v1.ring": ring,
        "frame-v1.bin": frame,  # compression 1, as the first agents sent it
        "frame-v1-dictionary.bin": frame,
        "bundle-v2.bin": bundle,
        "events-v1.ndjson": event_log,
    }
    for name, make in made.items():
        path = GOLDEN / name
        if path.exists():
            print(f"{name} exists; golden files never change")
        else:
            path.write_bytes(make())


if __name__ == "__main__":
    main()
