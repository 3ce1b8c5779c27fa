"""Frames that are decoded and checked together give what each gives alone."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.wire.codec import ROW_FIELDS, decode_frame, encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef
from paceline_service.analysis.matching.table import Table, runs_of_ranks
from paceline_service.analysis.records import Group, Records, concatenate
from paceline_service.ingest.columns import decode_records
from paceline_service.jobs.columns import decode_frames
from paceline_service.jobs.feed import BATCH_ROWS, FrameFeed
from paceline_service.jobs.sanitize import sanitize, sanitize_frames
from paceline_service.store.frames import AttemptRef, CommittedFrame

WORLD = 8
Row = tuple[int, ...]
small = st.integers(-2, 12)
times = st.one_of(st.integers(-5, 1 << 20), st.integers(1 << 40, 1 << 61))
# In the order of ROW_FIELDS: most rows make sense, some do not.
rows = st.lists(
    st.tuples(
        st.integers(0, 4), small, st.integers(-1, 4), small, small, st.integers(-2, WORLD),
        st.integers(-1, 1 << 40), times, times, st.just(0), st.just(0), st.integers(0, 255),
    ),
    max_size=12,
)  # fmt: skip


def frame_of(rank: int, content: list[Row], seq: int = 0, **values: object) -> Frame:
    frame = Frame(
        **{
            "job": "j", "run_id": "r", "attempt": 0, "rank": rank, "world_size": WORLD,
            "incarnation": f"{rank:032x}", "frame_seq": seq, "node": "n", "producer": "hooks",
            "count": len(content), "columns": encode_rows(content), **values,
        }
    )  # fmt: skip
    return decode_frame(encode_frame(frame))


def rows_of(columns: Records | Table) -> list[Row]:
    return list(zip(*(getattr(columns, name).tolist() for name in ROW_FIELDS), strict=True))


@settings(deadline=None)
@given(st.lists(rows, min_size=1, max_size=6))
def test_frames_decoded_together_hold_the_rows_of_each(contents: list[list[Row]]) -> None:
    frames = [frame_of(rank % WORLD, content) for rank, content in enumerate(contents)]
    table = decode_frames(frames)
    assert rows_of(table) == [row for frame in frames for row in rows_of(decode_records(frame))]
    assert table.rank.tolist() == [frame.rank for frame in frames for _ in range(frame.count)]


@settings(deadline=None)
@given(
    st.lists(rows, min_size=1, max_size=6),
    st.lists(st.lists(st.integers(-1, 3), max_size=4), min_size=6, max_size=6),
    st.lists(st.integers(0, 50), min_size=6, max_size=6),
)
def test_frames_checked_together_lose_what_each_loses(
    contents: list[list[Row]], groups: list[list[int]], bases: list[int]
) -> None:
    frames = [frame_of(rank % WORLD, content) for rank, content in enumerate(contents)]
    named = [np.array(groups[at], dtype=np.int64) for at in range(len(frames))]
    each = [
        sanitize(decode_records(frame), named[at], bases[at], WORLD)
        for at, frame in enumerate(frames)
    ]
    table, lost = sanitize_frames(
        decode_frames(frames),
        np.array([frame.count for frame in frames]),
        named,
        np.array(bases[: len(frames)], dtype=np.int64),
        WORLD,
    )
    assert rows_of(table) == [row for records, _ in each for row in rows_of(records)]
    assert {at: one for at, (_, one) in enumerate(each) if one} == lost


class Sink:
    """Keeps what a feed gives."""

    def __init__(self) -> None:
        self.groups: list[Group] = []
        self.parts: dict[int, list[Records]] = {}
        self.calls: Counter[str] = Counter()
        self.ended: dict[int, str] = {}

    def declare_rank(self, rank: int, **_where: str) -> None:
        self.parts.setdefault(rank, [])

    def declare_group(self, group: Group) -> int:
        self.calls["declare_group"] += 1
        self.groups.append(group)
        return len(self.groups) - 1

    def add_table(self, table: Table) -> None:
        self.calls["add_table"] += 1
        for records in runs_of_ranks(table):
            self.parts[records.rank].append(records)
            self.ended.pop(records.rank, None)

    def rank_ended(self, rank: int, how: str) -> None:
        self.ended[rank] = how

    def note_dropped(self, rank: int, dropped: dict[str, int]) -> None:
        self.calls["dropped"] += sum(dropped.values())

    def note_pending(self, *_args: object, **_values: object) -> None:
        self.calls["pending"] += 1

    def heard(self, *_args: object, **_values: object) -> None: ...

    def more_to_come(self, *_args: object, **_values: object) -> None: ...


ATTEMPT = AttemptRef(
    id=1, job="j", ordinal=1, run_id="r", launch_attempt=0, world_size=WORLD, first_seen_wall_ns=1
)
ALL = GroupDef(index=0, name="dp", ranks=f"0-{WORLD - 1}")


def push(feed: FrameFeed, number: int, frame: Frame) -> None:
    feed.push(
        CommittedFrame(
            id=number, attempt=ATTEMPT, frame=frame, received_wall_ns=number, packed_bytes=1
        )
    )


def step_rows(step: int, records: int = 3) -> list[Row]:
    begin = 10**9 * (step + 1)
    mine: list[Row] = [
        (1, 1, 0, step * records + i, step, -1, 4, begin + i, begin + i + 9, 0, 0, 0)
        for i in range(records)
    ]
    return [*mine, (3, 0, 0, 0, step, -1, 0, begin, begin + 10**8, 0, 0, 0)]


def test_a_batch_is_given_at_once_and_each_rank_keeps_its_order() -> None:
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=10**10)
    number = 0
    for step in range(4):
        for rank in range(WORLD):
            number += 1
            push(feed, number, frame_of(rank, step_rows(step), step, groups=[ALL]))
    assert not sink.calls["add_table"]
    feed.settle()
    assert sink.calls["add_table"] == 1
    assert sink.calls["declare_group"] == 1  # all members tell of the same one
    for rank in range(WORLD):
        assert concatenate(sink.parts[rank]).step.tolist() == [s for s in range(4) for _ in "abcd"]
        assert feed.newest(rank).step == 3
    feed.settle()
    assert sink.calls["add_table"] == 1


def test_a_batch_does_not_grow_without_end() -> None:
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=10**10)
    for seq in range(3 * BATCH_ROWS // 1000):
        push(feed, seq + 1, frame_of(0, step_rows(seq, 999), seq, groups=[ALL]))
    assert sink.calls["add_table"] == 2


def test_a_number_that_comes_to_mean_another_group_does_so_from_its_frame_on() -> None:
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=10**10)
    push(feed, 1, frame_of(0, step_rows(0), 0, groups=[ALL]))
    other = GroupDef(index=0, name="tp", ranks="0-1")
    push(feed, 2, frame_of(0, step_rows(1), 1, groups=[other]))
    feed.settle()
    records = concatenate(sink.parts[0])
    collective = records.kind == 1
    assert records.group[collective].tolist() == [0, 0, 0, 1, 1, 1]
    assert [group.name for group in sink.groups] == ["dp", "tp"]


def test_a_rank_ends_behind_its_last_records() -> None:
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=10**10)
    push(feed, 1, frame_of(0, step_rows(0), 0, groups=[ALL]))
    push(feed, 2, frame_of(0, step_rows(1), 1, groups=[ALL], ended="closed"))
    feed.settle()
    assert sink.ended == {0: "closed"}
    assert feed.all_ended


def test_a_group_that_does_not_hold_the_rank_is_refused_also_when_others_defined_it() -> None:
    sink = Sink()
    feed = FrameFeed(ATTEMPT, sink, wait_ns=10**10)
    pair = GroupDef(index=0, name="tp", ranks="0-1")
    push(feed, 1, frame_of(0, step_rows(0), 0, groups=[pair]))
    push(feed, 2, frame_of(5, step_rows(0), 0, groups=[pair]))
    feed.settle()
    assert feed.dropped(5) == {"bad_group": 1, "unknown_group": 3}
    assert not feed.dropped(0)
