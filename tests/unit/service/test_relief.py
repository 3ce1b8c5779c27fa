"""Who is asked for fewer steps when the collector cannot keep up, when, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paceline_service.control.relief import (
    HOLD_S,
    RELEASE_S,
    SETTLE_S,
    Candidate,
    Load,
    Order,
    Relief,
)

EVERY_S = 5.0
STRAINED = Load(waiting_ratio=0.9, refused=3, lag_s=30.0)
BETWEEN = Load(waiting_ratio=0.3, refused=0, lag_s=1.0)
EASY = Load(waiting_ratio=0.0, refused=0, lag_s=0.0)
SMALL = Candidate(job="small", records_per_s=10.0, asked=1, by_hand=1)
LARGE = Candidate(job="large", records_per_s=1000.0, asked=1, by_hand=1)


class Told:
    """Jobs that do what they are asked, and the orders with their times."""

    def __init__(self, relief: Relief, *jobs: Candidate) -> None:
        self.relief = relief
        self.jobs = {one.job: one for one in jobs}
        self.now_s = 1000.0
        self.orders: list[tuple[float, Order]] = []

    def run(self, load: Load, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            order = self.relief.decide(self.now_s, load, list(self.jobs.values()))
            if order is not None:
                self.orders.append((self.now_s, order))
                self.jobs[order.job] = replace(self.jobs[order.job], asked=order.stride)
            self.now_s += EVERY_S


def test_a_burst_asks_nobody_for_anything() -> None:
    told = Told(Relief(64), SMALL, LARGE)
    for _ in range(10):
        told.run(STRAINED, HOLD_S - EVERY_S)
        told.run(BETWEEN, EVERY_S)
    assert told.orders == []


def test_what_lasts_is_asked_of_the_job_that_sends_most_and_not_again_before_it_could_help() -> (
    None
):
    told = Told(Relief(64), SMALL, LARGE)
    told.run(STRAINED, HOLD_S + 2 * SETTLE_S)
    assert [order for _, order in told.orders][:2] == [
        Order(job="large", stride=2, direction="up"),
        Order(job="large", stride=4, direction="up"),
    ]
    first_s, second_s = (at for at, _ in told.orders[:2])
    assert first_s - 1000.0 >= HOLD_S
    assert second_s - first_s >= SETTLE_S


def test_what_somebody_asked_for_is_where_it_begins_and_never_undercut() -> None:
    by_hand = replace(LARGE, by_hand=6)
    told = Told(Relief(64), by_hand)
    told.run(STRAINED, HOLD_S + EVERY_S)
    assert told.orders[0][1].stride == 12
    told.run(EASY, RELEASE_S + SETTLE_S)
    assert told.orders[1][1] == Order(job="large", stride=1, direction="down")  # theirs holds


def test_there_is_a_largest_stride_and_then_the_next_job_is_asked() -> None:
    told = Told(Relief(4), SMALL, LARGE)
    told.run(STRAINED, HOLD_S + 10 * SETTLE_S)
    assert told.jobs["large"].asked == told.jobs["small"].asked == 4
    assert max(order.stride for _, order in told.orders) == 4


@pytest.mark.parametrize("load", [STRAINED, BETWEEN])
def test_nothing_is_taken_back_without_room(load: Load) -> None:
    told = Told(Relief(2), replace(LARGE, asked=2))
    told.run(load, 3 * RELEASE_S)
    assert told.orders == []


def test_with_room_it_is_taken_back_step_by_step() -> None:
    told = Told(Relief(64), replace(LARGE, asked=4), replace(SMALL, asked=2))
    told.run(EASY, 4 * RELEASE_S)
    assert [(order.job, order.stride) for _, order in told.orders] == [
        ("large", 2), ("small", 1), ("large", 1),
    ]  # fmt: skip
    assert all(order.direction == "down" for _, order in told.orders)


def test_where_room_does_not_last_the_next_attempt_waits_longer() -> None:
    told = Told(Relief(2), LARGE)
    waits = []
    for _ in range(4):
        told.run(STRAINED, HOLD_S + SETTLE_S)
        asked_s = told.orders[-1][0]
        while told.jobs["large"].asked > 1:
            told.run(EASY, EVERY_S)
        waits.append(told.orders[-1][0] - asked_s)
    assert waits == sorted(waits)
    assert waits[-1] > 4 * waits[0]


def test_at_1_nothing_is_asked_for() -> None:
    told = Told(Relief(1), LARGE)
    told.run(STRAINED, 10 * SETTLE_S)
    assert told.orders == []
