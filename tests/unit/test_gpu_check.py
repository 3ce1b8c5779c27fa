from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tools.gpu_check import figures
from tools.gpu_check.plan import (
    FAILED,
    LEAST_S,
    OK,
    SKIPPED,
    Outcome,
    Section,
    read_answer,
    run_all,
)
from tools.gpu_check.sections import CONDITIONS, RUN, SECTIONS

MS = 1_000_000


def test_the_tick_is_what_all_differences_are_multiples_of() -> None:
    assert figures.tick_ns([10_240, 10_240, 11_264, 13_312]) == 1024
    assert figures.tick_ns([7, 39, 71]) == 32
    assert figures.tick_ns([5, 5]) == 0
    assert figures.smallest_step_ns([5, 5, 37, 165]) == 32


def test_the_offset_lies_where_all_rounds_allow_it() -> None:
    # The GPU's clock is 1000 ahead of ours; each stamp lies somewhere between two readings.
    rounds = [(100, 1103, 110), (200, 1209, 212), (300, 1301, 309)]
    found = figures.offset(rounds)
    assert (found.low_ns, found.high_ns) == (-1001, -997)
    assert found.width_ns == 4


def test_drift_is_how_fast_two_clocks_part() -> None:
    early = figures.Offset(low_ns=0, high_ns=2000)
    late = figures.Offset(low_ns=50_000, high_ns=52_000)
    assert figures.drift_ppm(early, late, 1_000_000_000) == pytest.approx(50.0)


def test_the_delayed_rank_is_found_by_its_short_durations() -> None:
    durations = {
        0: {1: 5 * MS, 2: 125 * MS, 3: 6 * MS},
        1: {1: 5 * MS, 2: 5 * MS, 3: 125 * MS},
    }
    late = figures.find_late(durations, [2], 1, 80 * MS)
    assert (late.found, late.of, late.waited_ns) == (1, 1, 120 * MS)
    assert figures.find_late(durations, [3], 1, 80 * MS).found == 0
    assert figures.find_late(durations, [9], 1, 80 * MS).found == 0


def test_two_measurements_of_the_same_collectives_are_compared_pair_by_pair() -> None:
    seen = figures.compare({1: 900.0, 2: 1800.0, 7: 1.0}, {1: 1000.0, 2: 2000.0, 8: 5.0})
    assert seen["collectives"] == 2
    assert seen["ratio"] == pytest.approx(0.9)
    assert seen["median_us"] == pytest.approx(-0.15)
    assert figures.compare({1: 1.0}, {2: 1.0}) == {"collectives": 0}


def test_a_paired_ratio_has_an_interval_once_there_are_two_rounds() -> None:
    assert "low" not in figures.paired_ratio([11.0], [10.0])
    seen = figures.paired_ratio([11.0, 12.0, 10.0], [10.0, 10.0, 10.0])
    assert seen["low"] < seen["mean"] < seen["high"]
    assert seen["mean"] == pytest.approx(1.1)


def test_sections_that_the_budget_has_no_room_for_say_so() -> None:
    clock = [0.0]
    limits = []

    def run(section: Section, limit_s: float) -> Outcome:
        limits.append(limit_s)
        clock[0] += limit_s
        return Outcome(name=section.name, status=OK, said="", figures={}, seconds=limit_s)

    sections = [Section(name=name, limit_s=60, proves="") for name in ("a", "b", "c")]
    outcomes = run_all(sections, run, budget_s=100, now_s=lambda: clock[0])
    assert [outcome.status for outcome in outcomes] == [OK, OK, SKIPPED]
    assert limits == [60, 40]
    assert "--only c" in outcomes[2].said
    assert LEAST_S > 0


@pytest.mark.parametrize(
    ("answer", "returncode", "status", "said"),
    [
        ('{"status": "ok", "said": "fine", "figures": {}}', 0, OK, "fine"),
        ("", None, FAILED, "not done in time"),
        ('{"status": "ok"', 1, FAILED, "ended with 1"),
    ],
)
def test_a_section_that_dies_or_hangs_is_a_failure_with_its_log(
    tmp_path: Path, answer: str, returncode: int | None, status: str, said: str
) -> None:
    (tmp_path / "answer").write_text(answer)
    (tmp_path / "log").write_text("Segmentation fault")
    section = Section(name="a", limit_s=1, proves="")
    outcome = read_answer(section, tmp_path / "answer", tmp_path / "log", returncode, 1.0)
    assert outcome.status == status
    assert said in outcome.said
    if status == FAILED:
        assert "Segmentation fault" in outcome.figures["log"]


def test_every_section_can_be_run_and_is_documented() -> None:
    assert {section.name for section in SECTIONS} == set(RUN)
    page = (ROOT / "docs/gpu.md").read_text()
    for name in RUN:
        assert f"| {name} |" in page
    assert sum(section.limit_s for section in SECTIONS) < 1000
    assert "bare" in CONDITIONS


def test_without_a_gpu_it_says_so_and_ends_with_2() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU; on one without this is tested")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tools.gpu_check"],
        cwd=ROOT,
        env={key: os.environ[key] for key in ("PATH", "HOME") if key in os.environ},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 2
    assert "sees no NVIDIA GPU" in done.stderr
    assert done.stdout == ""


def test_it_needs_nothing_but_the_agents_sources_and_the_standard_library() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c",
         "import sys, json; import tools.gpu_check.sections, tools.gpu_check.ranks;"
         "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"],
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'agent/src'}", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=True,
    )  # fmt: skip
    loaded = set(json.loads(done.stdout))
    assert not loaded & {"msgspec", "numpy", "torch", "psutil", "paceline_service"}
