from __future__ import annotations

from paceline_service.jobs.walltime import SLEW_NS, WallClock


def test_without_an_anchor_no_wall_time_is_made_up() -> None:
    clock = WallClock()
    assert clock.to_wall_ns(5) == -1
    clock.anchor(0, 10**18)
    assert clock.to_wall_ns(5) == -1


def test_a_disciplined_clock_is_followed_and_one_set_back_is_not() -> None:
    clock = WallClock()
    clock.anchor(1_000, 10**18)
    assert clock.to_wall_ns(1_500) == 10**18 + 500
    clock.anchor(2_000, 10**18 + 1_000 - SLEW_NS)
    assert clock.to_wall_ns(2_000) == 10**18 + 1_000 - SLEW_NS
    assert clock.jumps_back == 0
    clock.anchor(3_000, 10**18 - 10**12)
    assert clock.to_wall_ns(3_000) == 10**18 + 2_000 - SLEW_NS
    assert clock.jumps_back == 1
    clock.anchor(4_000, 10**18 + 10**12)
    assert clock.to_wall_ns(4_000) == 10**18 + 10**12
