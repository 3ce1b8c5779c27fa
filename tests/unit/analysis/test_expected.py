"""The step of healthy ranks against the observed one, on jobs whose truth is known.

A fault draws no other noise than its absence: the same job without it says what a step should be.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from paceline.vocabulary import Flag, Phase, RecordKind
from paceline_service.analysis.expected.found import recaused
from paceline_service.analysis.report import Report
from tests.simulator.feed import analyse, feed
from tests.simulator.job import Fault, Scenario, simulate
from tests.simulator.network import Network, Slowness, simulate_network
from tests.simulator.pipeline import Pipeline, simulate_pipeline
from tests.unit.analysis.test_kinds import rotating
from tests.unit.analysis.test_network import sharded

JOB = Scenario(data_parallel=8, steps=80, jitter=0.015, seed=4)
NET = sharded(steps=80)
SINCE = 45


_REPORTS: dict[str, Report] = {}


def report_of(job: Scenario | Network) -> Report:
    """Return the report on a job; the same job is analysed once."""
    if repr(job) not in _REPORTS:
        if isinstance(job, Scenario):
            analysis = analyse(job)
        else:
            analysis, _ = feed(simulate_network(job), nodes=job.ranks // job.ranks_per_node)
        _REPORTS[repr(job)] = analysis.report()
    return _REPORTS[repr(job)]


def block_of(job: Scenario | Network) -> dict[str, Any]:
    block = report_of(job).expected
    assert block is not None
    assert block["reason"] is None
    parts = block["gap_parts_s"]
    gap_s = block["observed_step_s"] - block["expected_step_s"]
    assert block["gap_s"] == pytest.approx(gap_s, abs=2e-9)
    assert sum(parts.values()) == pytest.approx(gap_s, abs=1e-8)
    whole_s = block["compute_s"] + block["barrier_s"] + block["communication_s"]
    assert whole_s == pytest.approx(block["expected_step_s"], abs=3e-9)
    return block


def faulty(phase: Phase, *, first: int = SINCE, rank: int = 5) -> Scenario:
    return replace(JOB, faults=(Fault(rank=rank, phase=phase, extra_ms=12.0, first=first),))


@pytest.mark.parametrize(
    "job",
    [JOB, replace(JOB, heavy_tails=True), replace(JOB, data_parallel=4, tensor_parallel=2), NET],
    ids=["data parallel", "heavy tails", "tensor parallel", "sharded"],
)
def test_a_healthy_job_takes_what_is_expected_of_it(job: Scenario | Network) -> None:
    block = block_of(job)
    assert abs(block["gap_ratio"]) < 0.005
    assert [part for part, lost_s in block["gap_parts_s"].items() if lost_s] == ["unexplained"]
    low, high = block["expected_step_interval_s"]
    assert low < block["observed_step_s"] < high


@pytest.mark.parametrize(
    ("job", "healthy", "part"),
    [
        (faulty(Phase.BACKWARD), JOB, "straggler"),
        (faulty(Phase.BACKWARD, first=0), JOB, "straggler"),
        (faulty(Phase.HOST), JOB, "host"),
        (replace(NET, slow=(Slowness(what="nic", factor=1.6, where=(5,), first=SINCE),)), NET,
         "network"),
    ],
    ids=["straggler", "straggler from the start", "host", "network"],
)  # fmt: skip
def test_what_a_fault_costs_is_its_part_of_the_gap(
    job: Scenario | Network, healthy: Scenario | Network, part: str
) -> None:
    block, truth = block_of(job), block_of(healthy)
    should_s = truth["observed_step_s"]
    assert block["expected_step_s"] == pytest.approx(should_s, rel=0.01)
    cost_s = block["observed_step_s"] - should_s
    assert cost_s > 0.03 * should_s
    lost = dict(block["gap_parts_s"])
    assert lost.pop(part) == pytest.approx(cost_s, rel=0.12)
    assert abs(lost.pop("unexplained")) < 0.1 * cost_s
    assert not any(lost.values())


def test_a_slow_rank_of_a_pipeline_costs_what_receivers_stand_in_transfers_too() -> None:
    pipeline = Pipeline(steps=90, microbatches=4)
    healthy, slow = (
        feed(simulate_pipeline(job))[0].report().expected
        for job in (pipeline, replace(pipeline, slow={5: 1.3}, slow_from=45))
    )
    assert healthy is not None
    assert slow is not None
    assert abs(healthy["gap_ratio"]) < 0.002
    should_s = healthy["observed_step_s"]
    assert slow["expected_step_s"] == pytest.approx(should_s, rel=0.005)
    cost_s = slow["observed_step_s"] - should_s
    assert slow["gap_parts_s"]["straggler"] == pytest.approx(cost_s, rel=0.1)


def test_the_part_of_a_straggler_is_what_draining_it_gives_back() -> None:
    block, report = block_of(faulty(Phase.BACKWARD, first=0)), report_of(
        faulty(Phase.BACKWARD, first=0))  # fmt: skip
    (finding,) = report.findings
    assert finding.recoverable_ratio is not None
    back_s = finding.recoverable_ratio * block["observed_step_s"]
    assert block["gap_parts_s"]["straggler"] == pytest.approx(back_s, rel=0.05)
    # Its cost in GPU-seconds is the waits alone, those that healthy ranks have among them.
    assert finding.wasted_gpu_s is not None
    waited_s = finding.wasted_gpu_s / (block["steps"] * report.world_size)
    assert 0.8 * waited_s < block["gap_parts_s"]["straggler"] < 1.3 * waited_s


def test_uneven_work_is_the_imbalance_of_the_gap() -> None:
    block = block_of(rotating(JOB, extra_ms=12))
    lost = dict(block["gap_parts_s"])
    # Evenly spread, each rank would have an eighth of it in every step.
    assert lost.pop("imbalance") == pytest.approx(0.012 * 7 / 8, rel=0.1)
    assert abs(lost.pop("unexplained")) < 0.001
    assert not any(lost.values())


def test_everyone_slower_than_before_is_no_rank() -> None:
    slower = tuple(Fault(rank=r, phase=Phase.BACKWARD, extra_ms=8, first=70) for r in range(8))
    block = block_of(replace(JOB, steps=140, faults=slower))
    assert block["gap_parts_s"]["slowdown"] == pytest.approx(0.008 * 70 / 135, rel=0.1)
    assert abs(block["gap_parts_s"]["unexplained"]) < 0.0003


def test_a_stall_that_was_too_short_to_name_a_rank_is_told_as_unexplained() -> None:
    stall = Fault(rank=5, phase=Phase.BACKWARD, extra_ms=60, first=60, last=61)
    block = block_of(replace(JOB, faults=(stall,)))
    lost_s = 0.060 * 2 / 75
    assert block["gap_parts_s"]["unexplained"] == pytest.approx(lost_s, rel=0.15)


def test_alpha_and_beta_of_each_group_are_fitted_with_intervals() -> None:
    calibration = report_of(NET).calibration
    assert calibration is not None
    rows = {row["group"]: row for row in calibration["transfers"]}
    row = rows["shard010"]
    assert (row["op"], row["members"], row["sizes"]) == ("reduce_scatter", 2, 2)
    assert row["alpha_interval_s"][0] <= 40e-6 <= row["alpha_interval_s"][1]
    assert row["beta_interval_s_per_byte"][0] <= 1e-10 <= row["beta_interval_s_per_byte"][1]
    # A reduce-scatter over 2 ranks is one message of half of the payload.
    assert row["latency_s"] == row["alpha_s"]
    assert row["bandwidth_bytes_per_s"] == pytest.approx(0.5 / row["beta_s_per_byte"], rel=1e-5)
    assert "one size" in rows["tp0"]["reason"]
    assert rows["tp0"]["alpha_s"] is None
    (compute,) = calibration["compute"]
    assert (compute["ranks"], compute["members"]) == ("0-7", 8)
    assert compute["compute_s"] == pytest.approx(0.030, rel=0.01)


def test_with_too_few_steps_nothing_is_expected() -> None:
    report = analyse(replace(JOB, steps=8)).report()
    assert report.expected is not None
    assert report.expected["expected_step_s"] is None
    assert report.expected["reason"].startswith("3 steps of a settled job were seen")


@pytest.mark.parametrize("first", [None, 0], ids=["healthy", "slow from the first step on"])
def test_without_payloads_the_network_is_no_part_of_the_gap(first: int | None) -> None:
    faults = faulty(Phase.BACKWARD, first=first).faults if first is not None else ()
    job = simulate(replace(JOB, steps=60, transfer_ms=6.0, faults=faults))
    for rows in job.rows:
        rows[:] = [
            (*row[:6], 0, *row[7:11], int(row[11]) | int(Flag.FAILED))
            if row[0] == RecordKind.COLLECTIVE else row
            for row in rows
        ]  # fmt: skip
    block = feed(job)[0].report().expected
    assert block is not None
    assert block["gap_parts_s"]["network"] is None
    assert block["communication_modelled_ratio"] == 0.0
    assert "payload or time of release are not known" in block["communication_reason"]
    assert abs(block["gap_parts_s"]["unexplained"]) < 0.01 * block["expected_step_s"]
    assert (block["gap_ratio"] > 0.1) == (first is not None)


def test_the_report_as_json_holds_both_blocks() -> None:
    told = json.loads(json.dumps(report_of(JOB).to_dict(), allow_nan=False))
    assert told["expected"]["steps"] == 75
    assert {"compute", "transfers"} <= set(told["calibration"])


def test_a_cause_that_launches_tell_later_takes_its_part_along() -> None:
    report = report_of(faulty(Phase.BACKWARD))
    assert report.expected is not None
    (finding,) = report.findings
    moved = recaused(report.expected, [finding], [replace(finding, cause="host")])["gap_parts_s"]
    parts = report.expected["gap_parts_s"]
    assert (moved["host"], moved["straggler"]) == (parts["straggler"], 0.0)
    assert sum(moved.values()) == pytest.approx(sum(parts.values()))
