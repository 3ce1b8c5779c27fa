"""Event logs through the analysis: the same answer as live records give."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from paceline_service.importers.events import read_event_log
from paceline_service.importers.offline import analyze_log
from tests.simulator.feed import feed
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import all_reduce, header, small_job, write, write_simulated

SLOW = Scenario(steps=100, faults=(Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=50),))


@pytest.mark.parametrize("per_rank", [False, True])
def test_a_log_gives_the_report_that_live_records_give(tmp_path: Path, per_rank: bool) -> None:
    job = simulate(SLOW)
    live, _ = feed(job)
    with read_event_log(write_simulated(tmp_path, job, per_rank=per_rank)) as log:
        offline = analyze_log(log)
    assert offline.to_dict() == live.report().to_dict()
    assert offline.verdict == "straggler"
    assert offline.findings[0].ranks == [2]


def test_a_foreign_log_without_steps_and_joins_names_the_rank(tmp_path: Path) -> None:
    path = write_simulated(tmp_path, simulate(SLOW), run_id="")[0]
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    plain = [
        {key: value for key, value in line.items() if key not in ("join_ns", "issue_ns", "flags")}
        for line in lines
        if "step_start_ns" not in line
    ]
    # Only the last bucket of a step blocks; a plain log holds blocking collectives.
    plain = [line for line in plain if "op" not in line or line["seq"] % 3 == 2]
    for line in plain:
        if "op" in line:
            line["seq"] //= 3
    with read_event_log([write(path, plain)]) as log:
        report = analyze_log(log)
    assert report.verdict == "straggler"
    assert report.findings[0].ranks == [2]


def test_a_missing_rank_is_told_and_not_taken_for_healthy(tmp_path: Path) -> None:
    paths = write_simulated(tmp_path, simulate(Scenario(steps=60)), per_rank=True, ranks=[0, 1, 3])
    with read_event_log(paths) as log:
        report = analyze_log(log)
    assert report.ranks_observed == 3
    assert report.verdict == "insufficient_evidence"
    assert not report.complete


def test_a_log_of_a_header_alone_is_insufficient(tmp_path: Path) -> None:
    with read_event_log([write(tmp_path / "a", [header(4)])]) as log:
        assert analyze_log(log).verdict == "insufficient_evidence"


def test_what_was_unusable_makes_the_report_incomplete_and_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [*small_job(2, steps=20), all_reduce(0, 3, op="guess")])
    with read_event_log([path]) as log:
        report = analyze_log(log)
    assert not report.complete
    assert report.dropped["invalid"] == 1
    assert any(note.startswith(f"{path}:82: op 'guess'") for note in report.notes)


def test_how_ranks_ended_and_what_was_lost_of_them_is_in_the_report(tmp_path: Path) -> None:
    lines = [*small_job(2, steps=20), {"rank": 1, "ended": "killed", "dropped": {"overrun": 9}}]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        report = analyze_log(log)
    assert report.dropped["overrun"] == 9
    assert any("rank 1" in note for note in report.notes)


def test_steps_whose_numbers_have_a_gap_are_analysed(tmp_path: Path) -> None:
    lines = [line for line in small_job(2, steps=400) if not 20 <= line.get("step", 0) < 390]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert analyze_log(log).steps == 30
