from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline_service.commands.simulate import app, main

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/simulate.md").read_text(encoding="utf-8")
MEANS_MS = (100, 100, 130, 100)
COMMUNICATION_MS = 8


def told(capsys: pytest.CaptureFixture[str], command: str) -> str:
    assert main(shlex.split(command)) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], command: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, f"{command} --format json"))
    assert (found["schema"], found["model"]) == ("paceline.simulate/1", command.split()[0])
    assert found["meaning"]
    return found


@pytest.fixture(scope="module")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of which every step has one barrier: rank 2 is slow, the first five steps settle."""
    rng = np.random.default_rng(1)
    header = {
        "schema": "paceline.events/1", "world_size": 4, "groups": {"dp0": [0, 1, 2, 3]},
        "clock": "shared",
    }  # fmt: skip
    lines: list[dict[str, Any]] = [header]
    begin = 0
    for step in range(25):
        own = (np.array(MEANS_MS) * rng.normal(1, 0.01, 4) * 1e6).astype(int)
        end = begin + int(own.max()) + COMMUNICATION_MS * 1_000_000
        for rank in range(4):
            arrival = begin + int(own[rank])
            who = {"rank": rank, "step": step}
            lines.append({**who, "phase": "forward", "start_ns": begin, "end_ns": arrival})
            lines.append(
                {**who, "group": "dp0", "op": "all_reduce", "seq": step, "bytes": 1 << 20,
                 "start_ns": arrival, "end_ns": end}
            )  # fmt: skip
        begin = end
    path = tmp_path_factory.mktemp("job") / "job.ndjson"
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n", encoding="utf-8")
    return path


def test_bsp_without_options_tells_the_figures_of_the_four_ranks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = told(capsys, "bsp")
    for figure in ("128.68 ms", "93.75 ms", "34.93 ms", "37.6 %", "150.54 ms"):
        assert figure in text
    assert "Rank 3 computes 1.81x as long as the others and is the last in every step" in text
    found = answer(capsys, "bsp")
    assert round(found["wall_clock_s"] * 1e3, 2) == 128.68
    assert round(found["idle_injected_s"] * 1e3, 2) == 34.93
    assert round(found["straggler_share"], 3) == 0.376
    assert [row["last_in_steps"] for row in found["ranks"]] == [0, 0, 0, 3]
    assert [len(step["compute_s"]) for step in found["steps"]] == [4, 4, 4]


def test_steps_as_the_page_shows_them_are_those_of_the_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown = set(re.findall(r"^    +(\S.*)$", PAGE, re.MULTILINE))
    for command in ("bsp", "tax"):
        lines = {line.strip() for line in told(capsys, command).splitlines()}
        figures = {line for line in shown & lines if line[0].isdigit()}
        assert len(figures) >= 3, command


def test_a_job_is_simulated_as_it_was_recorded(
    capsys: pytest.CaptureFixture[str], event_log: Path
) -> None:
    found = answer(capsys, f"bsp --ranks-from {event_log}")
    assert found["input"]["noise"] == {"law": "recorded", "steps": 20, "in_order": True}
    assert found["straggler"] == 2
    assert found["input"]["communication_s"] == pytest.approx(COMMUNICATION_MS / 1e3)
    # One barrier a step is all there is in this job: the model gives what was measured.
    assert found["wall_clock_s"] / 20 == pytest.approx(found["measured_step_s"], rel=1e-6)
    drawn = answer(capsys, f"bsp --ranks-from {event_log} --steps 40 --communication 0s")
    assert drawn["input"]["noise"]["in_order"] is False
    assert len(drawn["steps"]) == 40
    assert drawn["communication_ratio"] == 0


def test_a_report_gives_averages_and_the_option_their_noise(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    rows = [
        {"rank": rank, "self_ns": 100 * own * 1_000_000, "wait_ns": 0,
         "exposed_comm_ns": 100 * COMMUNICATION_MS * 1_000_000}
        for rank, own in enumerate(MEANS_MS)
    ]  # fmt: skip
    report = {"schema": "paceline.report/1", "job": {"steps": 105}, "ranks": rows}
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report), encoding="utf-8")
    found = answer(capsys, f"bsp --ranks-from {path} --noise normal:1% --steps 200")
    assert found["input"]["mean_compute_s"] == pytest.approx([own / 1e3 for own in MEANS_MS])
    assert found["input"]["noise"] == {"law": "normal", "spread_ratio": 0.01}
    assert found["wall_clock_s"] / 200 == pytest.approx(0.138, rel=0.01)


def test_ranks_may_have_laws_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    command = "bsp --ranks 100ms*3,101ms~gamma:30% --noise normal:1% --steps 200"
    found = answer(capsys, command)
    assert found["input"]["noise"]["law_of_rank"] == [0, 0, 0, 1]
    drawn = np.array([step["compute_s"] for step in found["steps"]])
    assert drawn[:, :3].std() == pytest.approx(0.001, rel=0.2)
    assert drawn[:, 3].std() == pytest.approx(0.03, rel=0.2)
    assert found["meaning"][0].startswith("Rank 3 is hardly slower on average, but its times")


def test_ssp_sweeps_from_a_barrier_to_none_and_tells_staleness(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(capsys, "ssp --steps 60 --bounds 0,2,inf --local-steps 1,30")
    barrier, bounded, free = found["bounds"]
    assert [row["bound"] for row in found["bounds"]] == [0, 2, "inf"]
    assert barrier["wall_clock_s"] > bounded["wall_clock_s"] > free["wall_clock_s"]
    assert free["idle_s"] == 0
    assert barrier["staleness_steps"]["max"] == 0
    assert bounded["staleness_steps"]["max"] == 2
    assert sum(free["staleness_steps"]["histogram"]) == sum(free["updates_of_rank"]) == 240
    assert [row["rounds"] for row in found["local_steps"]] == [60, 2]
    text = told(capsys, "ssp --steps 60")
    assert "Rank 3 is always slower" in text
    even = " ".join(told(capsys, "ssp --ranks 100ms*16 --noise gamma:20% --steps 60").split())
    assert "The ranks wait by chance" in even
    assert "chance averages out over a round" in even


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bsp --ranks 100ms*8,120ms*8", "Several ranks are always slower"),
        ("bsp --ranks 100ms*8,120ms*8 --noise normal:1% --steps 100", "Several ranks are always"),
        ("bsp --ranks 100ms*6,200ms*2", "Several ranks are always slower"),
        ("bsp --ranks 100ms*16 --noise normal:10% --steps 100", "No rank is slow by itself"),
        ("bsp --ranks 20ms*2 --noise gamma:300% --steps 1 --seed 3", "give more --steps"),
        ("ssp --bounds 0,inf", "Rank 3 is always slower (1.81x the others): without any bound"),
        ("ssp --bounds 0", "Nothing is relaxed"),
        ("ssp --ranks 100ms*8,120ms*8 --noise normal:1%", "Several ranks are always slower"),
        ("ssp --ranks 100ms*8 --noise normal:10% --bounds 0,inf", "No bound at all gives"),
    ],
)
def test_who_is_waited_for_is_told_by_averages_and_not_by_a_single_rank(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in answer(capsys, command)["meaning"][0]


def test_of_ranks_that_never_wait_nothing_is_said_to_be_saved(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = " ".join(answer(capsys, "ssp --ranks 100ms*4")["meaning"])
    assert "hardly any waiting that they could save" in said
    assert "Steps are made faster" not in said


def test_tax_draws_what_the_closed_forms_say(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "tax --ranks 2,8,32,128 --steps 2000")
    assert len(found["rows"]) == 20
    assert sorted({row["slow"] for row in found["rows"]}) == [1, 1.5, 2, 3, 5]
    for row in found["rows"]:
        assert row["tax"] == pytest.approx(row["tax_expected"], abs=4 * row["tax_error"])
    eight = next(row for row in found["rows"] if (row["ranks"], row["slow"]) == (8, 1))
    assert round(eight["tax_expected"] / 0.05, 3) == 1.424
    text = " ".join(told(capsys, "tax --noise pause:1%:50% --ranks 128 --steps 200").split())
    assert "planned, cost 0.50 % instead" in text


def test_every_key_of_the_json_is_on_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    def keys(value: Any) -> set[str]:
        if isinstance(value, list):
            return set().union(*(keys(one) for one in value[:1]))
        if isinstance(value, dict):
            return set(value).union(*(keys(one) for one in value.values()))
        return set()

    documented = set(re.findall(r"[a-z0-9_]+", " ".join(re.findall(r"`([^`]*)`", PAGE))))
    commands = (
        "bsp",
        "bsp --ranks 2ms,2ms~pareto:3",
        "ssp --steps 10",
        "tax --ranks 2 --steps 10 --noise pause:1%:50%",
    )
    for command in commands:
        assert keys(answer(capsys, command)) - {"schema"} <= documented, command


def test_every_sub_command_is_on_the_page() -> None:
    assert [name for name in app if f"`simulate {name}`" not in PAGE] == []


@pytest.mark.parametrize("command", ["bsp --steps 20", "ssp --steps 20", "tax --steps 20"])
def test_plots_are_one_page_that_loads_nothing_or_a_picture(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str
) -> None:
    page, picture = tmp_path / "plots.html", tmp_path / "plots.png"
    told(capsys, f"{command} --html {page} --png {picture}")
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") >= 1
    assert not [word for word in ("<script", "src=", "style=", "nan") if word in text]
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("bsp --ranks 20ms", "--ranks '20ms' is one rank, which waits for nobody"),
        ("bsp --ranks 20", "--ranks is '20': it has no unit"),
        ("bsp --ranks 0ms,3ms", "--ranks is 0: give a finite number above 0"),
        ("bsp --ranks=-3ms,3ms", "--ranks is '-3ms', which is negative"),
        ("bsp --ranks 3ms,infs", "--ranks is 'infs'"),
        ("bsp --communication 6", "--communication is '6': it has no unit"),
        ("bsp --communication 400Gb/s", "--communication is '400Gb/s'"),
        ("bsp --noise normal:5", "give a share of the mean (5%) or a time (5ms)"),
        ("bsp --noise weibull:3", "'weibull' is no law; there are constant, uniform"),
        ("bsp --noise normal:50%", "take lognormal or gamma"),
        ("bsp --noise normal", "lacks its number"),
        ("bsp --noise gamma:5000%", "give at most 300%"),
        ("bsp --ranks 1e20s,5ms", "--ranks is '1e20s': give the time of a step"),
        ("bsp --noise pause:3%", "give probability and length, pause:1%:50ms"),
        ("bsp --noise pause:300%:5ms", "give one from 0 to 1"),
        ("bsp --ranks 20ms~,30ms", "--ranks '20ms~,30ms' is not understood"),
        ("bsp --ranks 20ms**3", "--ranks '20ms**3' is not understood"),
        ("bsp --ranks 20ms~foo,30ms", "'foo' is no law"),
        ("bsp --steps 0", "--steps is 0: give a whole number of steps, at least 1"),
        ("bsp --steps 100000000", "give at most 5,000,000 steps"),
        ("bsp --ranks 5ms*2000000", "over 1,000,000 ranks"),
        ("bsp --ranks 5ms,6ms --ranks-from x", "they exclude one another"),
        ("bsp --ranks-from /nowhere", "/nowhere does not exist"),
        ("bsp --html /nowhere/a.html", "/nowhere/a.html cannot be written"),
        ("ssp --bounds=-1", "--bounds '-1': give whole numbers of steps from 0, or inf"),
        ("ssp --bounds 1.5", "--bounds '1.5': give whole numbers of steps from 0, or inf"),
        ("ssp --local-steps 0", "--local-steps is 0"),
        ("ssp --local-steps 400", "--local-steps is 400 steps: give at most 300"),
        ("tax --ranks 1,2", "--ranks is 1: a rank alone waits for nobody"),
        ("tax --ranks 0", "--ranks is 0"),
        ("tax --slow 0.5", "give how many times as long a slow rank takes, 1 to 1,000,000"),
        ("tax --slow inf", "--slow 'inf'"),
        ("tax --noise normal:5ms", "is a time, and there is no step time here"),
        ("tax --noise pareto:1", "give a shape above 1"),
        ("tax --steps 1", "--steps is 1"),
        ("tax --steps 1000000", "draws: give at most"),
        ("bps", "no sub-command 'bps'"),
    ],
)
def test_bad_input_is_one_line_that_names_argument_value_and_what_is_expected(
    capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    assert main(shlex.split(command)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_column_of_zeros_is_in_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ssp", "--bounds", "inf", "--ranks", "20ms,38ms"]) == 0
    assert "ranks ns" not in capsys.readouterr().out
