from __future__ import annotations

import json
from typing import Any

from paceline_service.export.perfetto import (
    KINDS,
    MAX_LANES,
    Arrow,
    Drawing,
    Mark,
    Slice,
    trace_chunks,
)
from tests.integration.collector.traces import check_trace

COLLECTIVE = KINDS.index("collective")


def piece(start_ns: int, end_ns: int, rank: int = 0, name: str = "all_reduce") -> Slice:
    return Slice(
        start_ns=start_ns, end_ns=end_ns, rank=rank, kind=COLLECTIVE, name=name, args={"seq": 1}
    )


def trace(slices: list[Slice], **values: Any) -> dict[str, Any]:
    labels = {one.rank: (f"rank {one.rank}", "clock of rank 0") for one in slices}
    drawing = Drawing(labels=labels, slices=slices, **values)
    return dict(json.loads(b"".join(trace_chunks(drawing, {"schema": "paceline.timeline/1"}))))


def test_slices_that_overlap_are_drawn_on_threads_of_their_own() -> None:
    made = trace([piece(0, 100), piece(50, 150), piece(100, 200), piece(150, 160)])
    check_trace(made)
    threads = [event["tid"] for event in made["traceEvents"] if event["ph"] == "X"]
    assert threads[0] == threads[2]
    assert threads[1] == threads[3] != threads[0]


def test_a_thread_is_of_one_rank_only() -> None:
    made = trace([piece(0, 10, rank) for rank in range(3)])
    check_trace(made)
    assert len({event["tid"] for event in made["traceEvents"] if event["ph"] == "X"}) == 3


def test_what_overlaps_too_often_is_counted_and_not_drawn() -> None:
    made = trace([piece(number, 10_000) for number in range(MAX_LANES + 5)])
    assert check_trace(made)["X"] == MAX_LANES
    assert made["otherData"]["not_drawn"] == 5


def test_times_are_exact_to_the_nanosecond_and_in_microseconds() -> None:
    event = next(e for e in trace([piece(1_234_567, 2_000_001)])["traceEvents"] if e["ph"] == "X")
    assert (event["ts"], event["dur"]) == (1234.567, 765.434)


def test_an_arrow_that_would_go_back_in_time_is_not_drawn() -> None:
    early, late = piece(0, 10, 0), piece(500, 510, 1)
    assert check_trace(trace([early, late], arrows=[Arrow(source=late, target=early)]))["s"] == 0
    first, last = piece(0, 600, 0), piece(500, 610, 1)
    counts = check_trace(trace([first, last], arrows=[Arrow(source=last, target=first)]))
    assert (counts["s"], counts["f"]) == (1, 1)


def test_a_mark_lies_on_the_thread_of_its_slice() -> None:
    wide, over = piece(0, 100), piece(10, 20)
    mark = Mark(at_ns=10, rank=0, kind=COLLECTIVE, name="last", category="c", args={}, on=over)
    made = trace([wide, over], marks=[mark])
    check_trace(made)
    marks = [event for event in made["traceEvents"] if event["ph"] == "i"]
    assert [event["tid"] for event in made["traceEvents"] if event.get("dur") == 0.01] == [
        marks[0]["tid"]
    ]


def test_a_timeline_of_nothing_is_a_trace_too() -> None:
    assert not check_trace(trace([]))
