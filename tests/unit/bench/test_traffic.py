"""The made-up job is one that a collector accepts, and does not compress to nothing."""

from __future__ import annotations

import urllib.request

from paceline.vocabulary import RecordKind
from paceline.wire import columns
from paceline.wire.codec import decode_frame
from paceline_service.bench.sink import Sink
from paceline_service.bench.traffic import Shape, bodies

SHAPE = Shape(ranks=4, steps=6, collectives=10, steps_per_frame=2, frames_per_body=5)


def test_all_ranks_send_all_steps_in_frames_without_gaps() -> None:
    frames = [decode_frame(packed) for body in bodies(SHAPE, "bench", 1) for packed in body]
    assert sum(frame.count for frame in frames) == SHAPE.records
    for rank in range(SHAPE.ranks):
        assert [f.frame_seq for f in frames if f.rank == rank] == [0, 1, 2]


def test_nobody_leaves_a_collective_before_the_last_has_arrived() -> None:
    frames = [decode_frame(packed) for body in bodies(SHAPE, "bench", 1) for packed in body]
    arrivals: dict[int, list[int]] = {}
    releases: dict[int, list[int]] = {}
    for frame in frames:
        of = {n: columns.decode(frame.columns[n], frame.count) for n in frame.columns}
        for kind, seq, start, after in zip(
            of["kind"], of["seq"], of["start_ns"], of["end_after_ns"], strict=True
        ):
            if kind == RecordKind.COLLECTIVE:
                arrivals.setdefault(seq, []).append(start)
                releases.setdefault(seq, []).append(start + after)
    assert len(arrivals) == SHAPE.steps * SHAPE.collectives
    assert all(max(arrivals[seq]) < min(releases[seq]) for seq in arrivals)


def test_times_have_full_entropy() -> None:
    one = Shape(ranks=2, steps=10, collectives=100, steps_per_frame=5)
    packed_bytes = sum(len(packed) for body in bodies(one, "bench", 1) for packed in body)
    assert packed_bytes / one.records > 6


def test_the_sink_counts_what_it_accepts() -> None:
    sink = Sink()
    try:
        for body in bodies(SHAPE, "bench", 1):
            request = urllib.request.Request(f"{sink.url}/v1/frames", data=b"".join(body))
            with urllib.request.urlopen(request, timeout=5) as answer:
                assert answer.status == 200
    finally:
        sink.close()
    assert (sink.frames, sink.records) == (12, SHAPE.records)
