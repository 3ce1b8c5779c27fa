from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import InputError
from paceline.event_log import (
    LogGroup,
    LogHeader,
    LogRank,
    LogRow,
    LogTelemetry,
    header_line,
    parse_line,
    rank_line,
    record_line,
    telemetry_line,
)
from tests.contract.make_golden import ROWS, event_log

GOLDEN = Path(__file__).parent / "golden" / "events-v1.ndjson"


def test_golden_log_reads_as_it_was_written() -> None:
    header, *rest = [parse_line(json.loads(line)) for line in GOLDEN.read_text().splitlines()]
    assert isinstance(header, LogHeader)
    assert header.groups["dp"] == LogGroup(name="dp", ranks=tuple(range(8)), backend="gloo")
    assert header.groups["dp#a33c9991/1"] == LogGroup(
        name="dp", ranks=(1, 3, 5, 7), epoch=1, mesh_dim="dp", backend="nccl"
    )
    assert (header.rank, header.clock_domains, header.shared_clock) == (3, {3: "boot:1"}, False)
    rows = [one for one in rest if isinstance(one, LogRow)]
    index = {"": 0, "dp": 0, "dp#a33c9991/1": 1}
    assert [one.with_group(index[one.group]) for one in rows] == list(ROWS[:5])
    assert rest[-1] == LogRank(rank=3, ended="killed", dropped={"ring_overwritten": 3})


def test_writer_still_writes_the_golden_bytes() -> None:
    assert event_log() == GOLDEN.read_bytes()


def test_smallest_lines_of_the_format_are_read() -> None:
    header = parse_line(
        {"schema": "paceline.events/1", "world_size": 8, "groups": {"dp0": [0, 1, 2, 3]},
         "nodes": {"0": "node-a"}, "clock": "shared"}
    )  # fmt: skip
    assert header == LogHeader(
        world_size=8,
        groups={"dp0": LogGroup(name="dp0", ranks=(0, 1, 2, 3))},
        nodes={0: "node-a"},
        shared_clock=True,
    )
    row = parse_line(
        {"rank": 0, "step": 3, "group": "dp0", "op": "all_reduce", "seq": 17, "bytes": 1048576,
         "start_ns": 5, "end_ns": None, "something_new": [1]}
    )  # fmt: skip
    assert row == LogRow(0, "dp0", (1, 1, 0, 17, 3, -1, 1048576, 5, 0, 0, 0, 0))
    phase = parse_line({"rank": 1, "step": 3, "phase": "forward", "start_ns": 5, "end_ns": 9})
    assert phase == LogRow(1, "", (2, 2, 0, 0, 3, -1, 0, 5, 9, 0, 0, 0))


def test_line_of_an_unknown_kind_is_ignored() -> None:
    assert parse_line({"ring_tail": 5, "lost": {}}) is None
    assert parse_line({}) is None


def test_telemetry_survives_the_way_out_and_in() -> None:
    sample = LogTelemetry(rank=2, time_ns=7, values={"sm_clock_hz": 1.5e9})
    assert parse_line(json.loads(telemetry_line(sample))) == sample


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ([], "JSON object"),
        ({"schema": "paceline.events/2", "world_size": 1}, "this version reads"),
        ({"schema": "paceline.events/1"}, "world_size"),
        ({"schema": "paceline.events/1", "world_size": 0}, "world_size 0"),
        ({"schema": "paceline.events/1", "world_size": 2, "groups": {"a": [0, 2]}}, "outside"),
        ({"schema": "paceline.events/1", "world_size": 2, "groups": {"a": [0, 0]}}, "repeats"),
        ({"schema": "paceline.events/1", "world_size": 2, "groups": {"a": 5}}, "list of ranks"),
        ({"schema": "paceline.events/1", "world_size": 2, "nodes": {"x": "a"}}, "no rank"),
        ({"op": "allreduce", "rank": 0}, "op 'allreduce' is none of"),
        ({"op": "all_reduce", "rank": 0, "start_ns": 1}, "group None"),
        ({"op": "all_reduce", "group": "a", "rank": 0, "seq": 1}, "start_ns"),
        ({"op": "all_reduce", "group": "a", "rank": 0, "seq": True, "start_ns": 1}, "seq"),
        ({"op": "all_reduce", "group": "a", "rank": -1, "seq": 0, "start_ns": 1}, "rank -1"),
        ({"op": "all_reduce", "group": "a", "rank": 0, "seq": -1, "start_ns": 1}, "at least 0"),
        ({"op": "send", "group": "a", "rank": 0, "seq": 0, "start_ns": 9, "end_ns": 8}, "ends"),
        ({"op": "send", "group": "a", "rank": 0, "seq": 0, "start_ns": 1 << 63}, "64 bits"),
        ({"op": "send", "group": "a", "rank": 0, "seq": 0, "start_ns": 1.5}, "whole number"),
        ({"phase": "lunch", "rank": 0}, "none of host"),
        ({"phase": {}, "rank": 0}, "none of host"),
        ({"telemetry": 5, "rank": 0, "time_ns": 1}, "JSON object"),
        ({"ended": 5, "rank": 0}, "text"),
    ],
)
def test_bad_line_is_refused_with_its_value(line: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_line(line)


times = st.integers(1, (1 << 63) - 1)


@settings(max_examples=200, deadline=None)
@given(
    op=st.integers(0, 11),
    numbers=st.tuples(*[st.integers(0, (1 << 62))] * 2),
    step=st.integers(0, (1 << 32) - 1),
    peer=st.integers(-1, 999_999),
    start=st.integers(0, 1 << 61),
    lasted=st.one_of(st.none(), st.integers(1, 1 << 61)),
    join=st.one_of(st.just(0), times),
    issue=st.one_of(st.just(0), times),
    flags=st.integers(0, (1 << 32) - 1),
)
def test_every_collective_survives_the_way_out_and_in(
    op: int,
    numbers: tuple[int, int],
    step: int,
    peer: int,
    start: int,
    lasted: int | None,
    join: int,
    issue: int,
    flags: int,
) -> None:
    end = start + lasted if lasted is not None else 0
    row = (1, op, 0, numbers[0], step, peer, numbers[1], start, end, join, issue, flags)
    line = record_line(7, row, "g")
    assert line is not None
    assert parse_line(json.loads(line)) == LogRow(7, "g", row)


@pytest.mark.parametrize("row", [(2, 9), (9, 0), (1, 99)])
def test_row_without_a_name_in_this_version_has_no_line(row: tuple[int, int]) -> None:
    assert record_line(0, (*row, 0, 0, 0, -1, 0, 1, 2, 0, 0, 0), "g") is None


def test_header_and_state_survive_the_way_out_and_in() -> None:
    header = LogHeader(world_size=4, clock_domains={0: "a", 1: "b"}, nodes={0: "n", 1: "m"})
    assert parse_line(json.loads(header_line(header))) == header
    running = LogRank(rank=0, dropped={"ring_overwritten": 3})
    assert parse_line(json.loads(rank_line(running))) == running
