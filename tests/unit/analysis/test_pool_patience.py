"""Who is waited for when records come late: by the time in which frames come, and per rank."""

from __future__ import annotations

from paceline_service.analysis.matching.pool import StepPool
from tests.unit.analysis.test_pool import S, handed_out, steps


def pool(ranks: int = 2) -> StepPool:
    return StepPool(ranks, grace_steps=1, patience_s=30, patience_rows=1 << 20, catch_up_s=300)


def come(one: StepPool, rank: int, numbers: range, at_s: float) -> None:
    one.add(steps(rank, numbers))
    one.heard(rank, int(at_s * S))


def started() -> StepPool:
    held = pool()
    for rank in (0, 1):
        come(held, rank, range(10), 1000)
    assert handed_out(held) == list(range(9))
    return held


def test_a_rank_whose_spool_empties_after_that_of_another_is_waited_for() -> None:
    held = started()
    come(held, 0, range(10, 200), 1001)  # 190 s of steps at once
    assert handed_out(held) == []
    come(held, 1, range(10, 200), 1009)
    assert handed_out(held) == list(range(9, 199))
    assert held.dropped()["late"] == 0


def test_a_rank_that_is_silent_is_given_up_once_and_delays_nobody_afterwards() -> None:
    held = started()
    come(held, 0, range(10, 50), 1025)
    assert handed_out(held) == []
    come(held, 0, range(50, 55), 1031)
    assert handed_out(held) == list(range(9, 54))
    come(held, 0, range(55, 57), 1033)
    assert handed_out(held) == [54, 55]


def test_a_rank_that_comes_back_is_waited_for_again_once_it_has_caught_up() -> None:
    held = started()
    come(held, 0, range(10, 100), 1090)
    assert handed_out(held)[-1] == 98
    come(held, 1, range(10, 60), 1091)
    come(held, 0, range(100, 102), 1092)
    assert handed_out(held) == [99, 100]
    come(held, 1, range(60, 102), 1093)
    come(held, 0, range(102, 110), 1100)
    assert handed_out(held) == []
    come(held, 1, range(102, 110), 1101)
    assert handed_out(held) == list(range(101, 109))
    assert held.dropped()["late"] == 91


def test_a_rank_that_is_slower_than_the_job_for_long_is_passed_over() -> None:
    held = started()
    done = []
    for second in range(10, 600):
        come(held, 0, range(second, second + 1), 1000 + second)
        come(held, 1, range(9 + second // 10, 10 + second // 10), 1000 + second)
        done.append(len(handed_out(held)))
    assert sum(done[:300]) < 40  # it is waited for
    assert sum(done[:400]) > 300
    assert sum(done[-100:]) == 100  # and no more, however often it shows up


def test_what_is_known_to_come_is_waited_for_however_long_it_takes() -> None:
    held = started()
    held.to_come(1, more=True)
    come(held, 0, range(10, 5000), 9000)
    assert handed_out(held) == []
    come(held, 1, range(10, 4000), 9001)
    assert handed_out(held)[-1] == 3998
    held.to_come(1, more=False)
    come(held, 0, range(5000, 5001), 9100)
    assert handed_out(held)[-1] == 4999
    assert held.dropped()["late"] == 0
