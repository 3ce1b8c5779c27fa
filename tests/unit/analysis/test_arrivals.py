"""Unions of intervals, and who arrived last by durations alone."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from paceline_service.analysis.blame.arrivals import last_arrivals, nobody
from paceline_service.analysis.matching.intervals import covered_ns, length_ns, union

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(-3, 20)), max_size=12)


def columns(intervals: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(intervals, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 0] + table[:, 1]


def points(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


@given(INTERVALS)
def test_a_union_covers_each_instant_once(intervals: list[tuple[int, int]]) -> None:
    start, end = columns(intervals)
    first, last = union(start, end)
    assert points(first, last) == points(start, end)
    assert length_ns(start, end) == len(points(start, end))
    assert (first[1:] > last[:-1]).all()


@given(INTERVALS, INTERVALS)
def test_covered_time_is_what_two_sets_have_in_common(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    start, end = columns(some)
    by = union(*columns(others))
    covered = covered_ns(start, end, by)
    inside = points(*by)
    expected = [
        len(inside & set(range(a, b))) for a, b in zip(start.tolist(), end.tolist(), strict=True)
    ]
    assert covered.tolist() == expected


def test_the_shortest_duration_is_the_last_arriver_and_causes_all_waits() -> None:
    duration = np.array([[900, 100, 600], [500, 800, 100]], dtype=np.int64) * 1_000
    queue = np.array([[5, 2, 5], [5, 5, 900]], dtype=np.int64) * 1_000
    sums = last_arrivals(np.array([4, 5, 6]), duration, queue, 8)
    assert sums.total_ns == (800 + 500 + 400 + 700) * 1_000
    assert sums.caused_ns.tolist() == [0, 0, 0, 0, 0, 1_300_000, 1_100_000, 0]
    assert sums.last.tolist() == [0, 0, 0, 0, 0, 1, 1, 0]
    assert sums.host_late.tolist() == [0, 0, 0, 0, 0, 1, 0, 0]
    assert sums.gpu_busy.tolist() == [0, 0, 0, 0, 0, 0, 1, 0]


def test_nobody_is_last_where_all_arrive_within_the_floor() -> None:
    duration = np.array([[20_000, 30_000, 60_000]], dtype=np.int64)
    sums = last_arrivals(np.arange(3), duration, np.full((1, 3), -1), 3)
    assert not sums.last.any()
    assert not sums.caused_ns.any()


def test_an_unknown_launch_is_neither_late_nor_busy() -> None:
    duration = np.array([[900_000, 100_000]], dtype=np.int64)
    sums = last_arrivals(np.arange(2), duration, np.full((1, 2), -1), 2)
    assert sums.last.tolist() == [0, 1]
    assert not sums.host_late.any()
    assert not sums.gpu_busy.any()


def test_one_member_or_no_collective_sums_to_nothing() -> None:
    empty = np.zeros((0, 2), dtype=np.int64)
    alone = np.ones((3, 1), dtype=np.int64)
    for sums in (
        last_arrivals(np.arange(2), empty, empty, 2),
        last_arrivals(np.arange(1), alone, alone, 2),
        nobody(2) + nobody(2),
    ):
        assert sums.total_ns == 0
        assert sums.caused_ns.tolist() == [0, 0]
