from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline_service.commands.plan import main

LARGE = (
    "--layers", "96", "--hidden", "12288", "--vocabulary", "51200", "--ranks", "1024", "--tensor",
    "8", "--pipeline", "8", "--strategy", "zero1", "--batch", "1536",
)  # fmt: skip


def answer_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    assert main([*argv, "--format", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["schema"] == "paceline.plan/1"
    return answer


def text_of(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert main([*argv]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_step_is_told_part_by_part_with_the_largest_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_of(capsys, "step", *LARGE)
    assert answer["largest"] == "compute"
    assert sum(part["exposed_s"] for part in answer["parts"]) == pytest.approx(answer["step_s"])
    assert answer["tokens_per_s"] == pytest.approx(1536 * 2048 / answer["step_s"])
    assert answer["input"]["data"] == 16
    assert answer["memory"]["fits"] is True


def test_bits_and_bytes_give_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    in_bits = answer_of(capsys, "step", *LARGE, "--bandwidth", "200Gb/s")
    in_bytes = answer_of(capsys, "step", *LARGE, "--bandwidth", "25GB/s")
    assert in_bits["step_s"] == in_bytes["step_s"]


def test_a_slow_network_is_named_as_the_largest_part(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, "step", "--bandwidth", "1Gb/s", "--ranks-per-node", "1")
    assert "the largest part is not compute but data: gradients, weights" in text
    assert "what helps most is: 2x bandwidth between nodes" in text


def test_a_measured_step_is_compared_with_the_arithmetic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    slow = text_of(capsys, "step", *LARGE, "--observed", "50s")
    assert "slower than the arithmetic" in slow
    assert "faster than the arithmetic" in text_of(capsys, "step", *LARGE, "--observed", "5s")


def test_search_finds_a_layout_that_is_no_slower_and_fits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_of(capsys, "step", *LARGE, "--search")
    steps = [one["step_s"] for one in answer["layouts"]]
    assert steps == sorted(steps)
    assert steps[0] <= answer["step_s"]


def test_seven_billion_parameters_do_not_fit_under_ddp_and_do_when_sharded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = answer_of(capsys, "memory")["rows"]
    fits = {row["strategy"]: row["fits"] for row in rows}
    assert fits["DDP"] is False
    assert fits["ZeRO-3, FSDP full shard"] is True
    ddp = rows[0]
    assert ddp["parameters_bytes"] + ddp["gradients_bytes"] + ddp["optimizer_bytes"] == 16 * 7e9


def test_a_model_that_fits_nowhere_is_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    text = text_of(capsys, "memory", "--parameters", "1T", "--ranks", "8")
    assert "Nothing fits" in text


def test_one_rank_has_one_row_and_sends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    rows = answer_of(capsys, "memory", "--parameters", "66M", "--ranks", "1")["rows"]
    assert [(row["strategy"], row["sent_bytes"]) for row in rows] == [("DDP", 0)]
    assert "nothing is sent" in text_of(capsys, "step", "--parameters", "66M", "--ranks", "1")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("step", "--tensor", "3"), "--ranks is 64: give a multiple of 3"),
        (("step", "--bandwidth", "25"), "bits or bytes"),
        (("step", "--bandwidth", "infGB/s"), "--bandwidth is"),
        (("step", "--utilization", "1.5"), "--utilization is 1.5"),
        (("step", "--ranks-per-node", "7"), "give whole nodes of --ranks-per-node 7"),
        (("step", "--batch", "100"), "--batch is 100: give a multiple of 64"),
        (("step", "--parameters", "0"), "--parameters is 0"),
        (("step", "--precision", "int3"), "--precision is 'int3': give one of zero"),
        (("memory", "--memory", "80Gb"), "--memory is '80Gb', which is bits"),
        (("memory", "--ranks", "0"), "--ranks is 0"),
        (("memory", "--batch", "1", "--ranks-per-node", "7"), "--batch is 1: no layout divides"),
    ],
)
def test_bad_input_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    assert main(argv) == 2
    assert message in capsys.readouterr().err


def test_plots_are_written_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for verb in ("step", "memory"):
        path = tmp_path / f"{verb}.html"
        text_of(capsys, verb, "--html", str(path))
        assert "<svg" in path.read_text()
