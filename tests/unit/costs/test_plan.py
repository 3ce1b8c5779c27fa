from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline_service.analysis.costs.alpha_beta import Link, Machine
from paceline_service.analysis.costs.collectives import ring_all_reduce
from paceline_service.analysis.costs.compression import Compression, least_ratio, least_speed
from paceline_service.commands.plan import app, main
from tests.unit.costs.reports import calibrated

GAMMA_ROWS = """\
  1         2,048   275.69        0.00    0.000
  4           512    68.92       35.00    0.508
  16          128    17.23       43.75    2.539
  64           32     4.31       45.94   10.664
  256           8     1.08       46.48   43.164
  1,024         2     0.27       46.62  173.164
"""


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(told(capsys, *arguments, "--format", "json"))
    assert found["schema"] == "paceline.plan/1"
    assert found["model"] == arguments[0]
    assert found["meaning"]
    return found


def test_gamma_without_options_is_the_example_of_seven_billion_parameters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = told(capsys, "gamma")
    for row in GAMMA_ROWS.splitlines():
        assert row in text
    words = " ".join(text.split())
    assert "More ranks do not help: the ratio gamma, not the hardware. From 7 ranks on" in words
    assert "600 GB/s (4.8 Tb/s)" in words  # shown back, so that a mistaken unit is seen
    assert "data sheets of NVLink add both directions" in words


def test_gamma_of_a_fixed_local_batch_is_said_to_be_the_same_for_any_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for size in ("100M", "7B", "70B"):
        found = answer(
            capsys, "gamma", "--parameters", size, "--local-batch", "32", "--ranks", "64"
        )
        assert round(found["rows"][0]["gamma"], 2) == 10.66
    assert "the same for a model of any size" in found["meaning"][0]


def test_gamma_of_a_given_compute_time_says_where_it_breaks_even(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(
        capsys, "gamma", "--parameters", "2e8", "--bytes-per-parameter", "4",
        "--compute", "80ms", "--bandwidth", "10GB/s", "--ranks", "8,64",
    )  # fmt: skip
    assert [round(row["step_s"] * 1e3, 6) for row in found["rows"]] == [220, 237.5]
    assert found["break_even_ranks"] == 3
    assert "slows this job: from 3 ranks on" in found["meaning"][0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        # 6 ranks are the fastest, and gamma passes 1 only at 7.
        ("--compute 80ms --at-ranks 1 --parameters 1000 --latency 1ms --ranks 2,6",
         "More ranks do not help, though at 6 ranks gamma is only 0.75."),
        # Compute of one rank is longer than the bytes of an all-reduce, not than its messages.
        ("--latency 200ms --ranks 2,4", "computes the whole batch in 275.7 ms; two already take"),
        ("--latency 1ns --ranks 4,64", "with 2,048 ranks (5.89 times as fast as one rank); then "
         "each has one sample."),
        ("--local-batch 32 --latency 1ms --ranks 2,64", "make it larger, message by message"),
    ],
)  # fmt: skip
def test_what_latency_does_to_more_ranks_is_told_as_it_is(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in answer(capsys, "gamma", *arguments.split())["meaning"][0]


def test_the_least_ratio_agrees_with_the_step_where_messages_cost_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["gamma", "--parameters", "1M", "--ranks", "64", "--latency", "1us"]
    for ratio in ("1.5", "4", "30"):
        found = answer(
            capsys, *arguments, "--compress-gathers", "--compress-by", ratio
        )["compression"]["rows"][0]  # fmt: skip
        assert (found["step_speedup"] > 1) == (float(ratio) > found["least_ratio"])
    nothing = answer(capsys, "gamma", "--bandwidth", "1e20B/s", "--compress-by", "4")
    assert nothing["meaning"][-1].startswith("Compression hardly changes a step")


def test_a_job_below_break_even_is_sent_to_analyze(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "gamma", "--local-batch", "4096", "--ranks", "8")
    assert found["break_even_ranks"] is None
    assert found["meaning"][0].startswith("More ranks help")
    assert "paceline analyze" in found["meaning"][0]


def test_bits_and_bytes_give_one_answer(capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (
        answer(capsys, "gamma", "--bandwidth", text)["rows"] for text in ("400Gb/s", "50GB/s")
    )
    assert first == second


def test_collectives_say_from_which_size_on_which_algorithm(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = answer(
        capsys, "collectives", "--op", "all", "--ranks-per-node", "8",
        "--node-bandwidth", "450GB/s", "--node-latency", "2us",
    )  # fmt: skip
    all_reduce = found["operations"][0]
    assert all_reduce["op"] == "all_reduce"
    names = [step["algorithm"] for step in all_reduce["cheapest"]]
    assert names == ["tree", "hierarchical", "ring"]
    for operation in found["operations"]:
        for row in operation["rows"]:
            assert row["seconds"][row["cheapest"]] == min(row["seconds"].values())
    text = " ".join(told(capsys, "collectives").split())
    assert "tree is cheapest for small payloads, ring from 38.6 MB on" in text
    assert "A central server takes 64 times as long as a ring at 1 GB" in text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("gamma", "--parameters", "0"), "--parameters is 0"),
        (("gamma", "--ranks", "1"), "--ranks is 1: a rank alone sends nothing"),
        (("gamma", "--ranks", "4,0"), "--ranks is 0"),
        (("gamma", "--bandwidth", "600"), "--bandwidth is '600', which may be bits or bytes"),
        (("gamma", "--bandwidth", "inf"), "--bandwidth is 'inf', which is not finite"),
        (("gamma", "--bandwidth=-3GB/s"), "--bandwidth is '-3GB/s', which is negative"),
        (("gamma", "--global-batch", "64"), "--ranks 1024 is more than --global-batch 64"),
        (("gamma", "--compute", "80"), "--compute is '80': it has no unit"),
        (("gamma", "--compute", "1s", "--local-batch", "2"), "--local-batch and --compute"),
        (("gamma", "--utilization", "40"), "--utilization is 40"),
        (("gamma", "--bytes-per-parameter", "nan"), "--bytes-per-parameter is not a number"),
        (("gamma", "--compress-by", "1"), "--compress-by is 1"),
        (("gamma", "--compress-speed", "1GB/s"), "--compress-speed is given without --compress-by"),
        (("collectives", "--ranks", "1"), "--ranks is 1: a rank alone sends nothing"),
        (("collectives", "--bytes", "25Mb"), "--bytes is '25Mb', which is bits"),
        (("collectives", "--op", "broadcast"), "--op 'broadcast' is none of all_reduce"),
        (("collectives", "--ranks-per-node", "8"), "give --node-bandwidth"),
        (("collectives", "--node-bandwidth", "1GB/s"), "--ranks-per-node is 1"),
        (("collectives", "--servers", "0"), "--servers is 0"),
        (("collectives", "--ranks", "12", "--ranks-per-node", "8", "--node-bandwidth",
          "450GB/s"), "--ranks 12 is no multiple of --ranks-per-node 8"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_that_names_the_argument(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out = capsys.readouterr()
    assert not out.out
    assert named in out.err
    assert out.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("gamma", "--parameters="), "--parameters is empty: give a value, or leave it out"),
        (("overlap", "--backward", ""), "--backward is empty"),
        (("gamma", "--html="), "--html is empty"),
        (("gamma", "--html", "."), "--html is '.', a folder"),
    ],
)
def test_an_empty_value_is_not_taken_for_none(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    out = capsys.readouterr()
    assert not out.out
    assert named in out.err
    assert out.err.count("\n") == 1


def test_every_sub_command_is_listed_and_an_unknown_one_says_which_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in app)
    assert main(["gama"]) == 2
    assert "no sub-command 'gama'; there are gamma, collectives" in capsys.readouterr().err


def test_plots_are_one_file_that_says_the_same(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for verb in ("gamma", "collectives"):
        path = tmp_path / f"{verb}.html"
        told(capsys, verb, "--html", str(path))
        text = path.read_text()
        assert text.count("<svg") == 2
        assert answer(capsys, verb)["meaning"][0] in text
        assert "http://" not in text.replace("http://www.w3.org/", "")


def test_compression_pays_only_above_a_ratio_and_a_speed() -> None:
    machine = Machine(ranks=64, link=Link(alpha_s=0, bytes_per_s=10e9))
    plain_s = ring_all_reduce(machine).seconds(1e9)
    speed = least_speed(machine, 4.0)
    even = Compression(ratio=4.0, s_per_byte=1 / speed)
    assert even.cost(machine).seconds(1e9) == pytest.approx(plain_s)
    faster = Compression(ratio=4.0, s_per_byte=0.5 / speed)
    assert faster.cost(machine).seconds(1e9) < plain_s
    assert least_ratio(machine, 1 / speed, 1e9, summable=True) == pytest.approx(4.0)
    assert least_ratio(machine, 1.0, 1e9, summable=True) == float("inf")


def test_what_cannot_be_summed_must_be_compressed_by_half_the_number_of_ranks() -> None:
    machine = Machine(ranks=64, link=Link(alpha_s=0, bytes_per_s=10e9))
    assert least_ratio(machine, 0.0, 1e9, summable=False) == pytest.approx(32)
    even = Compression(ratio=32.0, summable=False)
    plain_s = ring_all_reduce(machine).seconds(1e9)
    assert even.cost(machine).seconds(1e9) == pytest.approx(plain_s)


def test_compression_is_told_with_what_makes_it_pay(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "gamma", "--compress-by", "100", "--compress-gathers")
    assert found["compression"]["rows"][-1]["least_ratio"] == pytest.approx(512)
    assert "It pays from a ratio of 512 on" in found["meaning"][-1]


def test_a_plan_starts_without_numpy_and_without_a_web_framework() -> None:
    code = (
        "import sys, paceline_service.commands.plan_gamma, "
        "paceline_service.commands.plan_collectives; "
        "print(sorted({'numpy', 'fastapi', 'sqlalchemy', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_jobs_own_report_tells_compute_and_network_and_stands_beside_the_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    report = str(calibrated(tmp_path / "report.json"))
    size = ("--parameters", "200M", "--bytes-per-parameter", "4")
    found = answer(capsys, "gamma", "--report", report, *size)
    assert [row["ranks"] for row in found["rows"]] == [4, 8, 16, 32, 64]
    assert found["rows"][1]["step_s"] == pytest.approx(0.220 + 14 * 2e-5)
    assert found["observed_step_s"] == 0.310
    assert "took 310 ms a step; healthy ranks would take 221 ms" in found["meaning"][1]
    assert "What is over the expected step is no arithmetic" in found["meaning"][1]
    shared = answer(capsys, "gamma", "--report", report, *size, "--at-ranks", "8")
    assert shared["rows"][2]["compute_s"] == pytest.approx(0.040)  # 16 ranks share the batch of 8


def test_a_report_that_tells_too_little_says_what_to_give_instead(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "report.json"
    why = "all transfers had one size"
    calibrated(path, bandwidth_bytes_per_s=None, reason=why)
    assert main(["gamma", "--report", str(path)]) == 2
    assert "--parameters is missing" in capsys.readouterr().err
    assert main(["gamma", "--report", str(path), "--parameters", "7B"]) == 2
    assert f"tells no bandwidth: {why}; give --bandwidth" in capsys.readouterr().err
    told(capsys, "gamma", "--report", str(path), "--parameters", "7B", "--bandwidth", "1GB/s")
    path.write_text('{"schema": "paceline.report/1"}')
    assert main(["gamma", "--report", str(path), "--parameters", "7B"]) == 2
    assert "has no calibration" in capsys.readouterr().err
    path.write_text('{"schema": "paceline.report/1", "calibration": [1]}')
    assert main(["gamma", "--report", str(path), "--parameters", "7B"]) == 2
    assert "its calibration is not understood" in capsys.readouterr().err
    path.write_text("[]")
    assert main(["gamma", "--report", str(path), "--parameters", "7B"]) == 2
    assert "is no paceline.report/1" in capsys.readouterr().err
