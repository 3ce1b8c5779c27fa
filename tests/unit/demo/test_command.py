"""What ``paceline demo`` demands of a report, and what it gives to the job."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.errors import ConfigError
from paceline_service.demo.command import job_command, job_environment, main
from paceline_service.demo.expect import Expectation, parse_expectation
from paceline_service.demo.session import what_failed


def report(verdict: str, ranks: list[int], phase: str | None) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "findings": [{"kind": verdict, "ranks": ranks, "phase": phase}] if ranks else [],
    }


def test_an_expectation_names_verdict_rank_and_phase() -> None:
    assert parse_expectation("straggler:2:backward") == Expectation(
        kind="straggler", rank=2, phase="backward"
    )
    assert parse_expectation("healthy") == Expectation(kind="healthy")


@pytest.mark.parametrize("text", ["slow", "straggler:two", "straggler:2:sideways"])
def test_an_expectation_that_no_report_can_meet_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_expectation(text)


@pytest.mark.parametrize(
    ("expected", "got", "said"),
    [
        ("healthy", report("healthy", [], None), ""),
        ("straggler:2:backward", report("straggler", [2], "backward"), ""),
        ("straggler:2", report("straggler", [2], "input"), ""),
        ("healthy", report("straggler", [2], "input"), "the verdict is straggler"),
        ("straggler:2", report("straggler", [1], "input"), "the ranks named are [1]"),
        ("straggler:2", report("straggler", [1, 2], "input"), "the ranks named are [1, 2]"),
        ("straggler:2:input", report("straggler", [2], "host"), "the phase named is host"),
    ],
)
def test_a_report_meets_its_expectation_or_the_difference_is_said(
    expected: str, got: dict[str, Any], said: str
) -> None:
    unmet = parse_expectation(expected).unmet(got)
    assert unmet.startswith(said)
    assert bool(unmet) is bool(said)


def test_rank_chooses_the_slow_rank_under_a_name_that_torchrun_leaves_alone(tmp_path: Any) -> None:
    outer = {"RANK": "1", "FAULT": "input", "PACELINE_URL": "http://elsewhere", "HOME": "/h"}
    inner = job_environment(outer, "http://127.0.0.1:1", "secret", tmp_path)
    assert inner["DEMO_SLOW_RANK"] == "1"
    assert inner["FAULT"] == "input"
    assert inner["PACELINE_URL"] == "http://127.0.0.1:1"
    assert "RANK" not in inner


def test_the_job_is_what_a_user_would_type() -> None:
    command = job_command(100)
    assert command[1:4] == ["-m", "paceline", "run"]
    assert command[-2:] == ["--steps", "100"]


def test_too_few_steps_are_refused_with_the_limit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--steps", "3"]) == 2
    assert "give 30 or more" in capsys.readouterr().err


def test_of_a_failed_job_the_ranks_own_words_are_given_once() -> None:
    lines = [
        "paceline sidecar: rank 0 closed",
        "FAULT=gremlin is unknown",
        "FAULT=gremlin is unknown",
        "E1120 21:58:21.872000 9937 torch/distributed/elastic/multiprocessing/api.py:1] failed",
        "Traceback (most recent call last):",
    ]
    assert what_failed(lines) == ["FAULT=gremlin is unknown"]
