"""What the sidecar reads of several rings becomes one bundle, and one entry of the spool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from paceline.clock import ClockAnchor
from paceline.ring import InFlight, Record, new_identity
from paceline.ring.rows import Rows, pack_record
from paceline.sidecar.bundle import Part, pack_bundle
from paceline.sidecar.follow import Chunk
from paceline.sidecar.group_facts import GroupFacts
from paceline.sidecar.pack import pack
from paceline.sidecar.segment import Mark
from paceline.sidecar.sinks import CollectorSink
from paceline.sidecar.spool import Spool
from paceline.sidecar.telemetry.buffer import Sample
from paceline.wire.bundle_codec import decode_bundle, frames_of
from paceline.wire.codec import decode_frame

STREAM = "ab" * 16
WORLD = GroupFacts(index=0, name="dp", ranks="0-3", epoch=0, mesh_dim="dp", backend="nccl")


def chunk(rank: int, rows: int = 3, job: str = "a job", **values: object) -> Chunk:
    identity = new_identity(
        job=job, run_id="run", attempt=1, rank=rank, local_rank=rank, world_size=4, node="n",
        boot_id="boot", time_namespace=1, producer="hooks",
    )  # fmt: skip
    records = [
        Record(1, 1, 0, seq, 7, -1, 64, 10**9 + 5000 * seq, 10**9 + 5000 * seq + 777,
               10**9 + 5000 * seq + 300, 0, rank)
        for seq in range(rows)
    ]  # fmt: skip
    made = Chunk(
        identity=identity, node="n", rows=Rows(b"".join(map(pack_record, records))), tail=rows,
        groups={0: WORLD}, pending=[], anchor=ClockAnchor(mono_ns=500 + rank, wall_ns=10**18),
        step=8, dropped={}, info={}, read_mono_ns=10**9 + rank,
    )  # fmt: skip
    return replace(made, **values)


class NoSender:
    """Takes no part: the spool is looked at instead."""

    def start(self) -> None: ...

    def wake(self) -> None: ...


def parts(*chunks: Chunk) -> list[Part]:
    return [Part(chunk=one, frame_seq=5 + at, with_info=True) for at, one in enumerate(chunks)]


def test_a_bundle_says_of_each_ring_what_a_frame_of_it_says() -> None:
    waiting = InFlight(
        op=1, group=0, seq=9, step=7, peer=-1, payload_bytes=64, start_ns=10**9, flags=0
    )
    chunks = (
        chunk(0),
        chunk(2, rows=0, dropped={"ring_torn": 2}, info={"torch": "2.9"}, pending=[waiting]),
        chunk(3, rows=1, ended="closed", control_generation=3, control_step=9,
              telemetry=[Sample(time_ns=7, values={"gpu_util": 4})], checkpoint_mono_ns=77),
    )  # fmt: skip
    made = frames_of(decode_bundle(pack_bundle(parts(*chunks), STREAM, 4).data))
    for at, (one, frame) in enumerate(zip(chunks, made, strict=True)):
        alone = frames_of(decode_bundle(pack_bundle(parts(one), STREAM, 4).data))[0]
        packed, _ = pack(one, 5 + at, with_info=True)
        expected = msgspec.structs.asdict(decode_frame(packed))
        got = msgspec.structs.asdict(frame)
        for name in ("columns", "sent_wall_ns", "frame_seq"):
            if name == "columns" and one.rows:
                assert got[name] == expected[name]
            del expected[name], got[name]
        assert got == expected
        assert alone.columns == frame.columns


def test_a_record_that_no_bundle_can_hold_is_counted_and_the_others_are_kept() -> None:
    broken = chunk(1)
    huge = pack_record(Record(1, 1, 0, 1 << 63, 7, -1, 64, 10**9, 10**9, 0, 0, 0))
    broken = replace(broken, rows=Rows(broken.rows.raw + huge))
    packed = pack_bundle(parts(chunk(0), broken), STREAM, 0)
    first, second = frames_of(decode_bundle(packed.data))
    assert packed.refused == [0, 1]
    assert (first.count, second.count) == (3, 3)
    assert second.dropped == {"unencodable": 1}


def test_rings_of_a_launch_share_a_bundle_and_those_of_another_do_not(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 8 << 20)
    sink = CollectorSink(spool, NoSender())  # type: ignore[arg-type]
    chunks = [chunk(0), chunk(1), chunk(0, job="other"), chunk(2)]
    assert sink.write_all(chunks) == [True] * 4
    assert sink.write_all(chunks[:1]) == [True]
    batch = spool.next_batch(1 << 20)
    assert batch is not None
    sent = [decode_bundle(entry.body) for entry in batch.frames]
    assert [(one.job, one.origin.ranks, one.frame_seq) for one in sent] == [
        ("a_job", (0, 1, 2), 0), ("other", (0,), 0), ("a_job", (0,), 1),
    ]  # fmt: skip
    assert sent[0].incarnation == sent[2].incarnation != sent[1].incarnation
    assert sent[2].body.frame_seqs == [1]
    spool.close()


@pytest.mark.parametrize("rows", [6000, 8192])
def test_what_is_too_much_for_one_bundle_goes_into_several(tmp_path: Path, rows: int) -> None:
    spool = Spool(tmp_path, 32 << 20)
    sink = CollectorSink(spool, NoSender())  # type: ignore[arg-type]
    assert sink.write_all([chunk(rank, rows=rows) for rank in range(4)]) == [True] * 4
    batch = spool.next_batch(8 << 20)
    assert batch is not None
    sent = [decode_bundle(entry.body) for entry in batch.frames]
    assert [one.origin.ranks for one in sent] == [(0, 1), (2, 3)]
    assert [one.frame_seq for one in sent] == [0, 1]
    spool.close()


def test_a_started_again_sidecar_knows_how_far_every_ring_of_a_bundle_had_come(
    tmp_path: Path,
) -> None:
    spool = Spool(tmp_path, 8 << 20)
    sink = CollectorSink(spool, NoSender())  # type: ignore[arg-type]
    lossy = chunk(0, dropped={"ring_overwritten": 4, "hook_errors": 1}, also={"cd" * 16: 9})
    other = chunk(1, ended="closed")
    sink.write_all([lossy, other])
    spool.close()
    again = Spool(tmp_path, 8 << 20)
    first, second = (again.progress[one.incarnation] for one in (lossy, other))
    assert (first.next_seq, first.ring_tail, first.ended, first.also) == (
        1,
        3,
        False,
        {"cd" * 16: 9},
    )
    assert first.dropped == {"ring_overwritten": 4}
    assert (second.next_seq, second.ended) == (1, True)
    again.close()


def test_a_bundle_that_a_full_spool_drops_counts_for_each_of_its_rings(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 1 << 16)
    marks = [
        Mark(incarnation=one * 32, frame_seq=0, ring_tail=5, records=records, ended=False, also={})
        for one, records in (("a", 3), ("b", 4))
    ]  # fmt: skip
    for seq in range(12):
        numbered = [replace(mark, frame_seq=seq) for mark in marks]
        assert spool.append_bundle(bytes(8000), stream=STREAM, seq=seq, marks=numbered)
    lost = {one[0]: progress.dropped["spool_full"] for one, progress in spool.progress.items()}
    assert lost["a"] % 3 == 0 < lost["a"]
    assert lost["b"] == lost["a"] // 3 * 4
    assert spool.progress["a" * 32].next_seq == 12
    spool.close()
