from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline_service.jobs.reorder import HOLD_LIMIT, ReorderBuffer


@given(st.permutations(list(range(12))))
def test_every_order_of_arrival_gives_the_same_order(order: list[int]) -> None:
    buffer: ReorderBuffer[int] = ReorderBuffer(0, 10**9)
    out = [item for seq in order for item in buffer.push(seq, seq, 0)]
    assert out == list(range(12))
    assert (buffer.skipped, buffer.late) == (0, 0)


def test_a_gap_is_waited_for_then_skipped_and_what_comes_later_is_late() -> None:
    buffer: ReorderBuffer[str] = ReorderBuffer(0, 100)
    assert buffer.push(0, "a", 0) == ["a"]
    assert buffer.push(3, "d", 10) == []
    assert buffer.expire(109) == []
    assert buffer.expire(110) == ["d"]
    assert buffer.skipped == 2
    assert buffer.push(1, "b", 120) == []
    assert buffer.late == 1
    assert buffer.push(4, "e", 130) == ["e"]


def test_a_clock_set_back_does_not_make_a_gap_last_for_ever() -> None:
    buffer: ReorderBuffer[str] = ReorderBuffer(0, 100)
    assert buffer.push(1, "b", 10_000) == []
    assert buffer.expire(50) == []
    assert buffer.expire(150) == ["b"]


def test_what_is_held_behind_a_gap_is_bounded() -> None:
    buffer: ReorderBuffer[int] = ReorderBuffer(0, 10**18)
    out = [item for seq in range(1, HOLD_LIMIT + 10) for item in buffer.push(seq, seq, 0)]
    assert out == list(range(1, HOLD_LIMIT + 10))
    assert buffer.skipped == 1


def test_a_replay_skips_what_the_store_lacks_and_waits_for_all_else() -> None:
    buffer: ReorderBuffer[int] = ReorderBuffer(2, None, missing=[(2, 4), (6, 7)])
    assert buffer.push(8, 8, 0) == []
    assert buffer.push(4, 4, 10**12) == [4]
    assert buffer.push(7, 7, 10**13) == []
    assert buffer.push(5, 5, 10**14) == [5, 7, 8]
    assert buffer.skipped == 3
