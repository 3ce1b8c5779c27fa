from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest

from paceline_service.analysis.blame.timeline import StepDetail, StepRow
from paceline_service.jobs.details import DetailKeeper, Details
from paceline_service.jobs.lanes import ALL_RANKS, ROWS_PER_S, LaneRow, Lanes
from paceline_service.jobs.windows import COLUMNS, Windows

SECOND_NS = 10**9
WALL_NS = 1_700_000_000 * SECOND_NS


def step(
    number: int, ranks: int, *, joins: int = 5, duration_ns: int = SECOND_NS, slow: int = -1
) -> StepRow:
    """A step in which each rank computes, waits and communicates ``joins`` times."""
    rng = np.random.default_rng(number)
    share = duration_ns // joins
    wait_ns = rng.integers(0, share // 4, (ranks, joins))
    wait_ns[slow] = 0 if slow >= 0 else wait_ns[slow]
    comm_ns = rng.integers(0, share // 4, (ranks, joins))
    position_ns = np.arange(joins) * share + share // 2 - wait_ns // 2
    wait_of, comm_of = wait_ns.sum(axis=1), comm_ns.sum(axis=1)
    return StepRow(
        step=number, start_ns=np.full(ranks, number * duration_ns), duration_ns=duration_ns,
        self_ns=duration_ns - wait_of - comm_of, wait_ns=wait_of, comm_ns=comm_of,
        phase_self_ns=np.zeros((ranks, 7), dtype=np.int64), slowest_rank=slow,
        detail=StepDetail(
            rank=np.repeat(np.arange(ranks), joins), position_ns=position_ns.ravel(),
            wait_ns=wait_ns.ravel(), comm_ns=comm_ns.ravel(),
            caused_ns=np.arange(ranks) * 10, blamed_ns=np.arange(ranks) * 7.0,
            last_count=np.arange(ranks),
        ),
    )  # fmt: skip


def to_wall(_rank: int, time_ns: int) -> int:
    return WALL_NS + time_ns


def lanes_of(lanes: Lanes, row: StepRow) -> list[LaneRow]:
    assert row.detail is not None
    return lanes.of_step(row, row.detail, to_wall)


@pytest.mark.parametrize(("ranks", "joins"), [(2, 3), (8, 40), (40, 100)])
def test_lanes_of_a_rank_follow_each_other_and_add_up_to_its_step(ranks: int, joins: int) -> None:
    lanes = Lanes(ranks)
    seen = 0
    for number in range(6):
        row = step(number, ranks, joins=joins)
        by_rank: dict[int, list[LaneRow]] = defaultdict(list)
        for lane in lanes_of(lanes, row):
            by_rank[lane[1]].append(lane)
        seen += bool(by_rank)
        for rank, drawn in by_rank.items():
            assert drawn[0][0] == WALL_NS + number * SECOND_NS
            assert drawn[-1][2] == drawn[0][0] + SECOND_NS
            assert all(before[2] == after[0] for before, after in itertools.pairwise(drawn))
            sums: dict[str, int] = defaultdict(int)
            for start_ns, _, end_ns, of_step, kind in drawn:
                assert of_step == number
                sums[kind] += end_ns - start_ns
            assert sums["compute"] == row.self_ns[rank]
            assert sums["wait"] == row.wait_ns[rank]
            assert sums["communication"] == row.comm_ns[rank]
    assert seen


def test_few_joins_are_drawn_where_they_were() -> None:
    row = step(0, 2, joins=3)
    assert row.detail is not None
    drawn = [lane for lane in lanes_of(Lanes(2), row) if lane[1] == 1]
    waits = [lane[0] - WALL_NS for lane in drawn if lane[4] == "wait"]
    assert waits == row.detail.position_ns[3:].tolist()


@pytest.mark.parametrize(("ranks", "duration_ns"), [(64, SECOND_NS), (64, 10**7), (8, 10**8)])
def test_the_volume_of_a_job_is_bounded_however_many_ranks_and_steps(
    ranks: int, duration_ns: int
) -> None:
    lanes = Lanes(ranks)
    rows = [lanes_of(lanes, step(n, ranks, joins=50, duration_ns=duration_ns)) for n in range(400)]
    job_s = 400 * duration_ns / 1e9
    assert sum(map(len, rows)) <= ROWS_PER_S * job_s + 10 * ROWS_PER_S
    assert sum(map(len, rows)) >= 0.3 * ROWS_PER_S * job_s
    whole = [len({lane[1] for lane in of_step}) for of_step in rows if of_step]
    assert set(whole) == {ranks}  # a step is drawn with everybody or not at all
    assert lanes.left_out == 400 - len(whole)


def test_of_many_ranks_the_flagged_slowest_median_and_fastest_have_lanes() -> None:
    lanes = Lanes(1000)
    self_ns = np.arange(1000)[::-1].copy()
    lanes.compare(self_ns)
    lanes.flag([77, 5])
    assert lanes.ranks() == [0, 1, 2, 3, 5, 77, 499, 999]
    assert Lanes(ALL_RANKS).ranks() == list(range(ALL_RANKS))


def test_a_rank_without_data_or_clock_has_no_lanes() -> None:
    row = step(0, 3)
    row.self_ns[1] = -1
    assert row.detail is not None
    drawn = Lanes(3).of_step(row, row.detail, lambda rank, at: -1 if rank == 2 else WALL_NS + at)
    assert {lane[1] for lane in drawn} == {0}


def windows_of(steps: int, ranks: int = 4) -> list[dict[str, int]]:
    windows = Windows(ranks, WALL_NS)
    rows = []
    for number in range(steps):
        row = step(number, ranks)
        assert row.detail is not None
        rows += windows.add(row, row.detail, WALL_NS + number * SECOND_NS)
    rows += windows.close()
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def test_windows_hold_every_step_once() -> None:
    rows = windows_of(25)
    for rank in range(4):
        mine = [row for row in rows if row["rank"] == rank]
        assert [(w["first_step"], w["last_step"], w["steps"]) for w in mine] == [
            (0, 9, 10), (10, 19, 10), (20, 24, 5),
        ]  # fmt: skip
        assert [w["start_wall_ns"] for w in mine] == [WALL_NS + n * SECOND_NS for n in (0, 10, 20)]
        assert sum(w["wait_ns"] for w in mine) == sum(step(n, 4).wait_ns[rank] for n in range(25))
        assert sum(w["blamed_wait_ns"] for w in mine) == 25 * 7 * rank
        assert sum(w["caused_wait_ns"] for w in mine) == 25 * 10 * rank
        assert sum(w["last_arrivals"] for w in mine) == 25 * rank
    for before, after in itertools.pairwise([row for row in rows if row["rank"] == 0]):
        assert before["end_wall_ns"] <= after["start_wall_ns"]


def test_windows_of_ten_thousand_ranks_are_longer_and_unknown_times_go_on() -> None:
    windows = Windows(16_384, WALL_NS)
    row = step(0, 16_384, joins=2)
    assert row.detail is not None
    closed = [len(windows.add(row, row.detail, -1)) for _ in range(170)]
    assert closed.count(0) == 169
    assert sum(closed) == 16_384


def test_an_analysis_that_begins_anew_replaces_what_waits() -> None:
    keeper = DetailKeeper(2, WALL_NS)
    waiting = Details()
    for number in range(3):
        keeper.take(step(number, 2), WALL_NS + number * SECOND_NS, to_wall)
    waiting.add(keeper.collect())
    assert waiting.first_step == 0
    again = DetailKeeper(2, WALL_NS)
    again.take(step(1, 2), WALL_NS + SECOND_NS, to_wall)
    again.finish()
    waiting.add(again.collect())
    assert waiting.first_step == 0
    assert sorted({lane[3] for lane in waiting.lanes}) == [0, 1]
    assert len(waiting.windows) == 2
