from __future__ import annotations

import pytest

from paceline.errors import ConfigError
from paceline_service.access.rate import BURST_S, RateLimiter
from paceline_service.access.tokens import Grant, check_prefix


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_bearer_gets_its_burst_then_its_rate_and_is_told_how_long_to_wait() -> None:
    clock = Clock()
    limiter = RateLimiter(10, 1000, clock)
    assert [limiter.admit("a")[0] for _ in range(int(10 * BURST_S))] == [""] * 20
    assert limiter.admit("a") == ("requests", 10, 0.1)
    assert limiter.admit("b")[0] == "", "another bearer has a bucket of its own"
    clock.now_s += 0.11
    assert limiter.admit("a")[0] == ""
    assert limiter.admit("a")[0] == "requests"


def test_a_large_body_is_taken_once_and_made_up_for_afterwards() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, 100, clock)
    assert limiter.admit("a")[0] == ""
    limiter.spend("a", 1000)
    assert limiter.admit("a") == ("bytes", 100, 8.0)
    clock.now_s += 8.01
    assert limiter.admit("a")[0] == ""


def test_a_token_may_have_limits_of_its_own() -> None:
    limiter = RateLimiter(1000, 1000, Clock())
    assert [limiter.admit("a", 1, None)[0] for _ in range(3)] == ["", "", "requests"]


def test_an_administrator_of_a_prefix_reaches_prefixes_within_it_only() -> None:
    grant = Grant(name="a", scopes=frozenset({"admin"}), job_prefix="team-a")
    within = {"team-a", "team-a-", "team-a.llm"}
    beyond = {"", "team", "team-ab", "team-b"}
    assert {prefix for prefix in within | beyond if grant.covers_prefix(prefix)} == within
    assert Grant(name="all", scopes=frozenset({"admin"})).covers_prefix("")


@pytest.mark.parametrize("prefix", ["a b", "a/b", "ä", "x" * 129, "a\n"])
def test_a_prefix_that_no_job_can_have_is_refused(prefix: str) -> None:
    with pytest.raises(ConfigError, match="no job"):
        check_prefix(prefix)
