from __future__ import annotations

import pytest

from paceline_service.store.steady_clock import BELIEVED_S, SteadyClock

DAY_S = 86_400.0
START_S = 1_700_000_000.0


class Clocks:
    """A wall clock that can be set, and one that cannot."""

    def __init__(self) -> None:
        self.mono_s = 1000.0
        self.off_s = 0.0
        self.steady = SteadyClock(self.wall_ns, lambda: self.mono_s)

    def wall_ns(self) -> int:
        return int((START_S + self.mono_s + self.off_s) * 1e9)

    def told_s(self) -> float:
        return self.steady.now_ns() / 1e9 - START_S - self.mono_s

    def go_on(self, total_s: float, step_s: float = 10.0) -> float:
        """Ask every ``step_s``; return by how much the last answer was off."""
        for _ in range(int(total_s / step_s)):
            self.mono_s += step_s
            self.steady.now_ns()
        return self.told_s()


def test_a_clock_that_nobody_sets_is_told_as_it_is() -> None:
    clocks = Clocks()
    clocks.off_s = 0.4  # slewed by NTP
    assert clocks.go_on(1000) == pytest.approx(0.4, abs=1e-3)


@pytest.mark.parametrize("jump_s", [10 * 365 * DAY_S, 3 * DAY_S, -2 * DAY_S])
def test_a_clock_that_was_set_is_believed_after_a_day(jump_s: float) -> None:
    clocks = Clocks()
    clocks.go_on(100)
    clocks.off_s = jump_s
    assert clocks.go_on(BELIEVED_S - 100, 100) == pytest.approx(0, abs=1e-3)
    assert clocks.go_on(300, 100) == pytest.approx(jump_s, abs=1e-3)


def test_a_clock_that_comes_back_has_never_been_believed() -> None:
    clocks = Clocks()
    clocks.off_s = 30 * DAY_S
    clocks.go_on(3600)
    clocks.off_s = 5.0
    assert clocks.go_on(10) == pytest.approx(5, abs=1e-3)
    clocks.off_s = 30 * DAY_S
    assert clocks.go_on(3600) == pytest.approx(5, abs=1e-3)


def test_each_further_jump_begins_the_day_anew() -> None:
    clocks = Clocks()
    for days in range(1, 6):
        clocks.off_s = 30 * DAY_S * days
        assert clocks.go_on(BELIEVED_S - 2000, 1000) == pytest.approx(0, abs=1e-3)
