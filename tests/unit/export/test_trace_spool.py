"""A trace that is drawn part by part is the one that would be drawn at once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paceline_service.export.perfetto import KINDS, MAX_LANES, Arrow, Drawing, Slice, trace_chunks
from paceline_service.export.timeline import spool as spool_module
from paceline_service.export.timeline.spool import TraceSpool
from tests.integration.collector.traces import check_trace

COLLECTIVE = KINDS.index("collective")


def piece(start_ns: int, end_ns: int, rank: int = 0, name: str = "all_reduce") -> Slice:
    return Slice(
        start_ns=start_ns, end_ns=end_ns, rank=rank, kind=COLLECTIVE, name=name, args={"seq": 1}
    )


def steps(first: int, count: int, *, late_ns: int = 0) -> Drawing:
    """Steps of two ranks, of which one begins its steps ``late_ns`` earlier than the other."""
    drawing = Drawing(labels={0: ("rank 0", ""), 1: ("rank 1", "")})
    for step in range(first, first + count):
        begin = step * 100 + 1000
        one, two = piece(begin, begin + 90), piece(begin - late_ns, begin + 90, 1)
        drawing.slices += [one, two]
        drawing.arrows.append(Arrow(source=one, target=two))
    return drawing


def spooled(*drawings: Drawing) -> dict[str, Any]:
    spool = TraceSpool()
    try:
        for drawing in drawings:
            spool.add(drawing)
        return dict(json.loads(b"".join(spool.chunks({"schema": "paceline.timeline/1"}))))
    finally:
        spool.close()


def test_parts_give_the_trace_that_the_whole_gives() -> None:
    whole = json.loads(b"".join(trace_chunks(steps(0, 40), {"schema": "paceline.timeline/1"})))
    made = spooled(steps(0, 10), steps(10, 29), steps(39, 1))
    assert made["traceEvents"] == whole["traceEvents"]
    assert check_trace(made)["s"] == 40


def test_a_part_that_begins_before_the_last_one_ends_overlaps_nothing() -> None:
    made = spooled(steps(0, 5, late_ns=80), steps(5, 5, late_ns=350), steps(10, 5, late_ns=700))
    assert check_trace(made)["X"] == 30


def test_the_file_is_read_back_whatever_piece_an_event_falls_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = spooled(steps(0, 20), steps(20, 20))
    for size in (13, 64, 257):
        monkeypatch.setattr(spool_module, "_READ_BYTES", size)
        assert spooled(steps(0, 20), steps(20, 20)) == expected


def test_what_has_no_room_is_counted_over_all_parts() -> None:
    drawings = [
        Drawing(labels={0: ("rank 0", "")}, slices=[piece(number, 10_000) for number in range(20)])
        for _ in range(3)
    ]
    made = spooled(*drawings)
    assert check_trace(made)["X"] == MAX_LANES
    assert made["otherData"]["not_drawn"] == 60 - MAX_LANES


def test_nothing_is_a_trace_too() -> None:
    assert not check_trace(spooled())
