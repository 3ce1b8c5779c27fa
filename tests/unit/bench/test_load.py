"""The load generator makes the frames that sidecars would, and judges what came of them."""

from __future__ import annotations

import time
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from paceline.errors import InputError
from paceline.ring import Record
from paceline.ring.rows import pack_record
from paceline.vocabulary import RecordKind
from paceline.wire import columns
from paceline.wire.bundle_codec import frames_in
from paceline.wire.codec import ROW_FIELDS, split_frames
from paceline.wire.frames import Frame
from paceline.wire.planes import encode_units
from paceline_service.bench.load.bodies import Bodies
from paceline_service.bench.load.encode import columns_of_bundles
from paceline_service.bench.load.figures import faults_of
from paceline_service.bench.load.job import MadeUpJob
from paceline_service.bench.load.shape import Fault, LoadShape, parse_fault
from paceline_service.bench.load.watch import lags_s
from paceline_service.bench.sink import Sink

SHAPE = LoadShape(ranks=20, collectives=10, steps=6, rate=2.0)


def frames_of(shape: LoadShape, directory: Path) -> list[Frame]:
    bodies = Bodies(shape, directory, time.time_ns())
    bodies.encode()
    found = [
        frame
        for node in range(shape.nodes)
        for block in range(bodies.blocks(node))
        for packed in split_frames(bodies.read(block, node))
        if isinstance(packed, bytes)
        for frame in frames_in(packed)
    ]
    bodies.close()
    return found


def test_bundles_of_all_nodes_are_encoded_as_a_sidecar_encodes_its_own() -> None:
    rng = np.random.default_rng(5)
    table = rng.integers(0, 100, (4, 9, len(ROW_FIELDS))) << 8
    table[1, :, 6:11] += 1 << 20
    table[2, 3, 6:11] = 1 << 40
    table[:, :, [0, 1, 2, 3, 4, 5]] >>= 8
    table[3, :, 5] = -1
    for of_bundle, encoded in zip(table, columns_of_bundles(table), strict=True):
        raw = b"".join(pack_record(Record(*row)) for row in of_bundle.tolist())
        assert encode_units(raw) == encoded


def test_a_frame_carries_what_a_rank_wrote_in_a_second_or_2048_records() -> None:
    assert SHAPE.steps_per_frame == 2
    slow = LoadShape(ranks=8, collectives=10, steps=6, rate=0.5)
    many = LoadShape(ranks=8, collectives=1000, steps=6, rate=5.0)
    assert (slow.steps_per_frame, many.steps_per_frame) == (1, 2)


def test_every_rank_sends_every_step_in_frames_without_gaps(tmp_path: Path) -> None:
    frames = frames_of(SHAPE, tmp_path)
    assert sum(frame.count for frame in frames) == SHAPE.records
    assert {frame.node for frame in frames} == {"node-0", "node-1", "node-2"}
    for rank in range(SHAPE.ranks):
        mine = [frame for frame in frames if frame.rank == rank]
        assert [frame.frame_seq for frame in mine] == list(range(len(mine)))
        assert [frame.ended for frame in mine] == [""] * (len(mine) - 1) + ["closed"]


def test_a_sidecar_that_looks_later_than_others_has_more_steps_in_its_first_frame() -> None:
    shape = LoadShape(ranks=8192, collectives=10, steps=7, rate=2.0)
    assert (shape.flush_s, shape.steps_per_frame) == (2.0, 4)
    assert [shape.lead(phase_s) for phase_s in (0.0, 0.4, 0.5, 1.9)] == [0, 0, 1, 3]
    cut = {lead: [shape.steps_of(b, lead) for b in range(shape.blocks(lead))] for lead in (0, 1, 3)}
    assert cut == {
        0: [range(4), range(4, 7)],
        1: [range(1), range(1, 5), range(5, 7)],
        3: [range(3), range(3, 7)],
    }


def test_a_frame_leaves_when_what_it_holds_is_over_and_not_much_later(tmp_path: Path) -> None:
    shape = LoadShape(ranks=8 * 40, collectives=2, steps=9, rate=3.0)
    bodies = Bodies(shape, tmp_path, time.time_ns())
    bodies.encode()
    for node in range(shape.nodes):
        lead = shape.lead(bodies.phase_s(node))
        for block in range(bodies.blocks(node)):
            over_s = shape.steps_of(block, lead).stop * shape.step_s
            assert 0 <= bodies.due_s(block, node) - over_s <= shape.step_s
    bodies.close()


def test_nobody_leaves_a_collective_before_the_last_of_its_group_has_arrived(
    tmp_path: Path,
) -> None:
    shape = LoadShape(ranks=16, collectives=10, steps=2, rate=1.0, tensor_parallel=4)
    clocks = MadeUpJob(shape).offset_ns
    seen: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for frame in frames_of(shape, tmp_path):
        of = {n: columns.decode(frame.columns[n], frame.count) for n in frame.columns}
        names = {group.index: group.name for group in frame.groups}
        for kind, group, seq, start, after in zip(
            of["kind"], of["group"], of["seq"], of["start_ns"], of["end_after_ns"], strict=True
        ):
            if kind == RecordKind.COLLECTIVE:
                began = start - int(clocks[frame.rank])
                seen.setdefault((names[group], seq), []).append((began, began + after))
    assert {len(members) for members in seen.values()} == {4}
    for members in seen.values():
        assert max(began for began, _ in members) < min(ended for _, ended in members)


def test_times_do_not_compress_to_nothing(tmp_path: Path) -> None:
    shape = LoadShape(ranks=8, collectives=200, steps=4, rate=1.0)
    bodies = Bodies(shape, tmp_path, time.time_ns())
    bodies.encode()
    assert bodies.total_bytes / shape.records > 3.5
    bodies.close()


def test_a_fault_begins_after_a_third_of_the_steps_unless_told() -> None:
    assert parse_fault("5:straggler:30", 90) == Fault(rank=5, percent=30.0, first_step=30)
    assert parse_fault("5:straggler:2.5@7", 90) == Fault(rank=5, percent=2.5, first_step=7)


@pytest.mark.parametrize("text", ["5", "5:gremlin:3", "a:straggler:3", "5:straggler:0", "5:s:3:1"])
def test_a_fault_that_means_nothing_is_refused_with_what_to_write(text: str) -> None:
    with pytest.raises(InputError, match="write RANK:straggler:PERCENT"):
        parse_fault(text, 10)


def test_a_job_that_cannot_be_is_refused() -> None:
    for wrong in (
        LoadShape(ranks=0, collectives=1, steps=1, rate=1.0),
        LoadShape(ranks=10, collectives=1, steps=1, rate=1.0, tensor_parallel=4),
        LoadShape(ranks=4, collectives=1, steps=1, rate=1.0, fault=parse_fault("4:straggler:1", 1)),
    ):
        with pytest.raises(InputError):
            wrong.check()


def test_the_lag_of_a_step_counts_from_its_last_release_and_the_last_step_has_none() -> None:
    lags = lags_s(SHAPE, 100.0, [(101.0, 1), (102.5, 4), (104.0, 6)])
    assert lags == [0.5, 1.5, 1.0, 0.5, 1.5]


def test_a_load_whose_straggler_is_not_named_has_failed() -> None:
    found = {
        "shape": {"bundles": 10, "steps": 5}, "accepted": 9, "judged_steps": 5, "complete": True,
        "verdict": "healthy", "fault": {"rank": 3, "named": False},
    }  # fmt: skip
    assert faults_of(found) == [
        "9 of 10 bundles were accepted", "rank 3 was not named; the verdict is healthy",
    ]  # fmt: skip


def test_the_sink_counts_what_it_accepts(tmp_path: Path) -> None:
    bodies = Bodies(SHAPE, tmp_path, time.time_ns())
    bodies.encode()
    blocks = bodies.blocks(0)
    sink = Sink()
    try:
        for block in range(blocks):
            body = bodies.read(block, 0)
            request = urllib.request.Request(f"{sink.url}/v1/frames", data=body)
            with urllib.request.urlopen(request, timeout=5) as answer:
                assert answer.status == 200
    finally:
        sink.close()
        bodies.close()
    assert (sink.frames, sink.records) == (8 * blocks, 8 * SHAPE.steps * SHAPE.records_per_step)
