from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline.wire.codec import encode_rows
from paceline.wire.frames import Frame
from paceline_service.access.cardinality import MIN_PROCESSES, Cardinality
from paceline_service.access.rate import BURST_S, LONGEST_WAIT_S, RateLimiter
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


def test_who_may_come_next_to_never_is_told_to_wait_for_a_day() -> None:
    limiter = RateLimiter(1000, 1000, Clock())
    assert limiter.admit("a", 5e-324)[0] == ""
    assert limiter.admit("a", 5e-324) == ("requests", 5e-324, LONGEST_WAIT_S)
    assert limiter.admit("b", None, 5e-324)[0] == ""
    limiter.spend("b", 1000)
    assert limiter.admit("b", None, 5e-324) == ("bytes", 5e-324, LONGEST_WAIT_S)


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


def frame(job: str = "train", process: int = 0, world_size: int = 4, **values: Any) -> Frame:
    return Frame(
        job=job, run_id="run", rank=0, world_size=world_size, incarnation=f"{process:032x}",
        frame_seq=0, node="n", producer="hooks", count=0, columns=encode_rows([]),
        **{"attempt": 0, **values},
    )  # fmt: skip


def limits(clock: Clock, *, most_per_day: int = 100, most_live: int = 100) -> Cardinality:
    return Cardinality(
        most_per_day=most_per_day, most_live=most_live, live_window_s=900, clock_s=clock
    )


GRANT = Grant(name="t", scopes=frozenset({"ingest"}), token_id=1)
OTHER = Grant(name="t", scopes=frozenset({"ingest"}), token_id=2)


def test_a_token_begins_so_many_launches_a_day_and_known_ones_go_on() -> None:
    clock = Clock()
    cardinality = limits(clock, most_per_day=3)
    for number in range(3):
        assert cardinality.fault(frame(attempt=number), GRANT) == ""
    assert "began 3 launches within a day" in cardinality.fault(frame("another"), GRANT)
    assert cardinality.fault(frame(attempt=1), GRANT) == ""
    assert cardinality.fault(frame("another"), OTHER) == "", "each token has its own share"
    clock.now_s += 86_401
    assert cardinality.fault(frame("a-third"), GRANT) == ""


def test_launches_that_are_silent_make_room_for_new_ones() -> None:
    clock = Clock()
    cardinality = limits(clock, most_live=2)
    assert cardinality.fault(frame("a"), GRANT) == ""
    clock.now_s += 800
    assert cardinality.fault(frame("b"), GRANT) == ""
    assert "MAX_LIVE_LAUNCHES" in cardinality.fault(frame("c"), GRANT)
    clock.now_s += 200
    assert cardinality.fault(frame("c"), GRANT) == "", "a was silent for 1000 s"
    assert "MAX_LIVE_LAUNCHES" in cardinality.fault(frame("d"), GRANT)


def test_a_launch_has_so_many_processes_and_those_it_has_go_on() -> None:
    cardinality = limits(Clock())
    for number in range(MIN_PROCESSES):
        assert cardinality.fault(frame(process=number), GRANT) == ""
    assert "launch it anew" in cardinality.fault(frame(process=MIN_PROCESSES), GRANT)
    assert cardinality.fault(frame(process=0), GRANT) == ""
    assert cardinality.fault(frame(process=MIN_PROCESSES, attempt=1), GRANT) == ""


def test_the_limit_on_open_files_bounds_connections_and_is_raised_as_far_as_allowed() -> None:
    code = (
        "import resource, sys\n"
        "from paceline_service.access.connections import raise_file_limit\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))\n"
        "print(raise_file_limit(1000), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
    )

    def after(soft: int, hard: int) -> list[int]:
        command = [sys.executable, "-c", code, str(soft), str(hard)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return [int(word) for word in done.stdout.split()[-2:]]

    assert after(512, 4096) == [1000, 2256]
    assert after(512, 1500) == [1000, 1500]
    assert after(512, 600) == [344, 600]
    assert after(4096, 4096) == [1000, 4096]
