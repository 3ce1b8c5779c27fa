"""Expected against observed step in sentences, and as metrics."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paceline import metrics
from paceline_service.analysis.costs.calibrate_flops import with_flops
from paceline_service.export.expected_words import (
    calibration_sentences,
    expected_sentence,
    gap_sentence,
)
from paceline_service.export.html.expected import expected_section
from paceline_service.export.job_series import JobSample, job_rows

PARTS = {"straggler": 0.007, "network": 0.0, "imbalance": 0.0, "host": 0.0, "slowdown": 0.0,
         "unexplained": -0.00002}  # fmt: skip
EXPECTED: dict[str, Any] = {
    "steps": 85, "observed_step_s": 0.047, "expected_step_s": 0.04002,
    "expected_step_interval_s": [0.0395, 0.0405], "gap_s": 0.00698, "gap_ratio": 0.1744,
    "compute_s": 0.037, "barrier_s": 0.00102, "communication_s": 0.002, "gap_parts_s": PARTS,
    "communication_modelled_ratio": 1.0, "communication_reason": None, "reason": None,
}  # fmt: skip
CALIBRATION: dict[str, Any] = {
    "compute": [{"ranks": "0-7", "members": 8, "compute_s": 0.037,
                 "compute_interval_s": [0.0365, 0.0375]}],
    "transfers": [{"group": "dp0", "op": "all_reduce", "members": 8, "alpha_s": 40e-6,
                   "bandwidth_bytes_per_s": 5e9}],
}  # fmt: skip


def test_the_step_is_told_with_what_it_is_made_of_and_where_the_rest_went() -> None:
    report = {"verdict": "straggler", "expected": EXPECTED}
    told = expected_sentence(report)
    assert told.startswith("Step: 47 ms observed against 40.02 ms expected of healthy ranks")
    assert "17 % longer" in told
    assert gap_sentence(report) == "The difference is: slow ranks 7 ms."


@pytest.mark.parametrize("verdict", ["hang", "desync"])
def test_the_step_of_a_job_that_stands_still_is_the_one_of_before(verdict: str) -> None:
    told = expected_sentence({"verdict": verdict, "expected": EXPECTED})
    assert told.startswith("Step until the job stood still: 47 ms observed against 40.02 ms")


def test_what_is_not_expected_is_told_with_its_reason_but_not_twice() -> None:
    unknown = {**dict.fromkeys(EXPECTED), "reason": "3 steps were seen"}
    report = {"verdict": "straggler", "expected": unknown}
    assert expected_sentence(report) == "Expected step time: not known, for 3 steps were seen."
    assert expected_sentence({**report, "verdict": "insufficient_evidence"}) == ""
    assert gap_sentence(report) == ""


def test_flops_are_told_only_where_somebody_said_what_a_step_has() -> None:
    assert calibration_sentences({"calibration": CALIBRATION}) == [
        "all_reduce of dp0 (8 ranks): 40 us to start, then 5 GB/s (40 Gb/s) out of a rank"
    ]
    told = calibration_sentences({"calibration": with_flops(CALIBRATION, 8, 92.352e12)})
    assert told[0].startswith("a rank computes at 312 TFLOP/s (308 TFLOP/s to 316 TFLOP/s)")


def test_the_parts_of_the_gap_are_metrics_and_sum_to_it() -> None:
    sample = JobSample(
        job="train", state="running", world_size=8, ranks=[], ranks_seen=8, last_step=90,
        open_findings=(), report={"verdict": "straggler", "findings": [], "expected": EXPECTED},
    )  # fmt: skip
    values = job_rows(sample, [], 64).values
    parts = values[metrics.JOB_STEP_GAP_SECONDS]
    gap_s = (
        values[metrics.JOB_OBSERVED_STEP_SECONDS][("train",)]
        - values[metrics.JOB_EXPECTED_STEP_SECONDS][("train",)]
    )
    assert abs(sum(parts.values()) - gap_s) < 1e-9
    assert parts["train", "straggler"] == 0.007


def test_the_html_report_draws_both_steps_to_one_scale_and_tells_the_parts() -> None:
    report = {"verdict": "straggler", "expected": EXPECTED, "calibration": CALIBRATION}
    told = str(expected_section(report))
    widths = [float(w) for w in re.findall(r'<rect[^>]* width="([0-9.]+)"', told)]
    assert sum(widths[3:]) / sum(widths[:3]) == pytest.approx(47 / 40.02, rel=0.01)
    assert "lost to slow ranks" in told
    assert "all_reduce of dp0" in told.replace("All_reduce", "all_reduce")
    assert expected_section({"verdict": "healthy"}) is None
