from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline_service.commands.analyze import main as analyze
from paceline_service.commands.plan import main as plan
from paceline_service.commands.simulate import main as simulate


def answer_of(capsys: pytest.CaptureFixture[str], *argv: str) -> dict[str, Any]:
    verb = simulate if argv[0] == "simulate" else plan
    assert verb([*argv[1:], "--format", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    assert plan(["overlap", *argv]) == 2
    return capsys.readouterr().err


def report(tmp_path: Path, transfers: Sequence[object] = (), **trace: Any) -> str:
    """Write a report of 4 ranks and 10 steps with two collectives each."""
    ranks = [{"rank": r, "self_ns": 3e9, "wait_ns": 0, "exposed_comm_ns": 5e8} for r in range(4)]
    data = {"trace": {"ranks": ranks, "collectives": 20, **trace}} if trace else {}
    path = tmp_path / "report.json"
    path.write_text(
        json.dumps(
            {"schema": "paceline.report/1", "job": {"steps": 10, "collectives": 20},
             "ranks": ranks, "data": data, "calibration": {"transfers": list(transfers)}}
        )
    )  # fmt: skip
    return str(path)


def busy(compute_s: float, communication_s: float, exposed_s: float) -> dict[str, float]:
    return {
        "compute_ns": compute_s * 40e9, "communication_ns": communication_s * 40e9,
        "exposed_communication_ns": exposed_s * 40e9,
    }  # fmt: skip


def test_200_ms_of_backward_and_60_ms_of_all_reduce_take_260_ms_naively(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answer = answer_of(capsys, "plan", "overlap", "--latency", "0us")
    assert answer["schema"] == "paceline.plan/1"
    assert answer["naive_s"] == pytest.approx(0.260)
    assert answer["bound_s"] == pytest.approx(0.200)
    four = next(row for row in answer["rows"] if row["buckets"] == 4)
    assert four["exposed_s"] == pytest.approx(0.015)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("plan overlap --gradients 100MB --bandwidth 10GB/s --latency 100ms",
         "Buckets would not help: each costs its latency again, 1.4 s"),
        ("plan overlap --gradients 50kB", "too small to be cut into buckets"),
        ("plan overlap --backward 1us --gradients 100GB", "longer than the backward pass"),
        # The link never rests: more is exposed than the last bucket.
        ("plan overlap --all-reduce 191ms --latency 71us", "3.642 ms for which it waits for the"),
        ("simulate overlap --buckets 1", "1 bucket: "),
        ("simulate overlap --buckets 1", "so nothing is hidden"),
        ("simulate overlap --latency 100us --buckets 200", "Larger ones would"),
    ],
)  # fmt: skip
def test_where_buckets_do_not_pay_it_is_said(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said in " ".join(answer_of(capsys, *arguments.split())["meaning"])


def test_the_size_of_gradients_follows_from_the_time_of_their_all_reduce_and_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    timed = answer_of(capsys, "plan", "overlap", "--bandwidth", "25GB/s", "--latency", "0us")
    assert timed["input"]["gradient_bytes"] == pytest.approx(0.060 * 25e9 * 8 / 14, rel=1e-9)
    sized = answer_of(
        capsys, "plan", "overlap", "--gradients", "800MB", "--bandwidth", "80Gb/s", "--ranks", "8",
        "--latency", "0us",
    )  # fmt: skip
    assert sized["input"]["all_reduce_s"] == pytest.approx(2 * 7 / 8 * 800e6 / 10e9)


def test_simulate_and_plan_agree_on_equal_buckets(capsys: pytest.CaptureFixture[str]) -> None:
    planned = answer_of(capsys, "plan", "overlap")
    played = answer_of(capsys, "simulate", "overlap", "--buckets", "16")
    assert played["schema"] == "paceline.simulate/1"
    row = next(row for row in planned["rows"] if row["buckets"] == 16)
    assert played["end_s"] == pytest.approx(row["backward_and_all_reduce_s"])
    assert len(played["buckets"]) == 16


def test_a_traced_job_is_compared_with_what_its_buckets_could_hide(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = report(tmp_path, job=busy(0.300, 0.060, 0.050), wait_ns=0)
    measured = answer_of(capsys, "plan", "overlap", "--report", path)["measured"]
    assert measured["backward_s"] == pytest.approx(0.200)
    assert measured["buckets"] == 2
    assert measured["expected_exposed_s"] == pytest.approx(0.030)
    assert measured["gain_s"] == pytest.approx([0.020, 0.020])


def test_waiting_inside_collectives_makes_the_hidden_share_uncertain_and_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = report(tmp_path, job=busy(0.300, 0.060, 0.050), wait_ns=0.020 * 40e9)
    answer = answer_of(capsys, "plan", "overlap", "--report", path)
    assert answer["measured"]["transfer_s"] == pytest.approx(0.040)
    assert answer["measured"]["hidden_ratio"] == pytest.approx([0.0, 0.25])
    assert any("waits 20 ms a step" in sentence for sentence in answer["meaning"])


def test_links_that_the_job_itself_tells_give_the_best_bucket_of_that_job(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    fitted = {
        "op": "all_reduce", "members": 4, "alpha_s": 60e-6, "latency_s": 10e-6,
        "bandwidth_bytes_per_s": 10e9,
    }  # fmt: skip
    path = report(tmp_path, [fitted], job=busy(0.300, 0.060, 0.050), wait_ns=0)
    answer = answer_of(capsys, "plan", "overlap", "--report", path)
    told = answer["input"]
    assert (told["ranks"], told["alpha_s"]) == (4, pytest.approx(10e-6))
    # Two all-reduces of the job took 60 ms, latencies included; one would take one latency less.
    assert told["all_reduce_s"] == pytest.approx(0.060 - 60e-6)
    assert told["gradient_bytes"] == pytest.approx((0.060 - 120e-6) * 10e9 * 4 / 6, rel=1e-6)
    assert answer["best_buckets"] == pytest.approx((0.200 - 0.060) / 60e-6, rel=0.01)


def test_all_models_take_the_link_of_a_report_from_the_same_row_that_of_the_largest_group(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def row(members: int, bandwidth: float | None, op: str = "all_reduce") -> dict[str, object]:
        return {"op": op, "members": members, "alpha_s": -1e-6, "latency_s": -1e-7,
                "bandwidth_bytes_per_s": bandwidth, "links": []}  # fmt: skip

    pair = {**row(16, 3e9), "links": [[0, 1]]}
    rows = [pair, row(2, 99e9), row(16, None), row(8, 11e9, "all_gather"), row(8, 10e9)]
    path = report(tmp_path, rows, job=busy(0.300, 0.060, 0.050), wait_ns=0)
    told = answer_of(capsys, "plan", "overlap", "--report", path)["input"]
    assert (told["ranks"], told["bytes_per_s"], told["alpha_s"]) == (8, 10e9, 0)
    whole = json.loads(Path(path).read_text())
    whole["job"]["world_size"] = 8
    whole["calibration"]["compute"] = [{"compute_s": 0.2}]
    Path(path).write_text(json.dumps(whole))
    told = answer_of(capsys, "plan", "gamma", "--report", path, "--parameters", "1M")["input"]
    assert (told["bytes_per_s"], told["alpha_s"]) == (10e9, 0)


def test_a_report_that_lacks_figures_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = report(tmp_path, job={"compute_ns": "much"})
    assert "is incomplete" in refused(capsys, "--report", path)


def test_a_report_without_traces_needs_the_time_of_the_all_reduce(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = report(tmp_path)
    assert "give --all-reduce" in refused(capsys, "--report", path)
    asked = ("plan", "overlap", "--report", path, "--all-reduce", "60ms")
    measured = answer_of(capsys, *asked)["measured"]
    assert measured["hidden_ratio"] == pytest.approx([1 - 50 / 60] * 2)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--backward", "200"), "--backward is '200': it has no unit"),
        (("--backward", "-1ms"), "--backward"),
        (("--bandwidth", "25"), "bits or bytes"),
        (("--ranks", "1"), "--ranks is 1: a rank alone sends nothing"),
        (("--all-reduce", "50us"), "no longer than its latency, 70 us"),
        (("--all-reduce", "60ms", "--gradients", "1GB", "--bandwidth", "1GB/s"), "leave one out"),
        (("--report", "/no/such/report.json"), "cannot be read"),
    ],
)
def test_bad_input_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], message: str
) -> None:
    assert message in refused(capsys, *argv)


def test_plots_are_written_where_they_are_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for verb in (plan, simulate):
        path = tmp_path / f"{verb.__module__}.html"
        assert verb(["overlap", "--html", str(path)]) == 0
        assert "<svg" in path.read_text()
    assert "naive" in capsys.readouterr().out


def test_a_real_gloo_job_exposes_what_the_model_says_of_its_two_buckets(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    # Traces of a DDP job on four CPU ranks, 32 steps; whether waiting or transfer was hidden is
    # not in a trace, so the measured share is a range.
    traces = Path(__file__).parents[2] / "fixtures" / "kineto" / "gloo_healthy"
    assert analyze([str(traces), "--format", "json"]) == 0
    path = tmp_path / "report.json"
    path.write_text(capsys.readouterr().out)
    measured = answer_of(capsys, "plan", "overlap", "--report", str(path))["measured"]
    assert measured["buckets"] == 2
    expected_s = measured["expected_exposed_s"]
    assert measured["least_exposed_s"] <= expected_s <= measured["most_exposed_s"]
