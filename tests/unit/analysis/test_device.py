"""Jobs whose collectives and phases were timed on the device."""

from __future__ import annotations

import pytest

from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.matching.pool import StepPool
from paceline_service.analysis.records import records_from_rows
from tests.simulator.device import DeviceScenario, simulate_devices
from tests.simulator.feed import feed

CAPTURES = [
    pytest.param(True, True, id="plugin and timers"),
    pytest.param(True, False, id="plugin alone"),
    pytest.param(False, True, id="timers alone"),
]


@pytest.mark.parametrize(("plugin", "device_steps"), CAPTURES)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_job_on_healthy_gpus_is_healthy(seed: int, plugin: bool, device_steps: bool) -> None:
    scenario = DeviceScenario(seed=seed, steps=200, device_steps=device_steps, plugin=plugin)
    analysis, _ = feed(simulate_devices(scenario))
    report = analysis.report()
    assert report.verdict == "healthy", report.notes


@pytest.mark.parametrize(("plugin", "device_steps"), CAPTURES)
@pytest.mark.parametrize(
    ("slow", "cause"), [("compute", "compute"), ("launch", "host"), ("input", "input")]
)
def test_the_slow_rank_is_named_with_its_gpu_told_from_its_host(
    slow: str, cause: str, plugin: bool, device_steps: bool
) -> None:
    scenario = DeviceScenario(
        slow=slow, steps=200, device_steps=device_steps, plugin=plugin, extra_ms=25.0
    )
    analysis, _ = feed(simulate_devices(scenario))
    report = analysis.report()
    assert report.verdict == "straggler"
    assert [finding.ranks for finding in report.findings] == [[scenario.slow_rank]]
    assert report.findings[0].cause == cause


def test_self_time_wait_and_communication_sum_to_the_step_on_the_device() -> None:
    job = simulate_devices(DeviceScenario(steps=30))
    _, steps = feed(job)
    assert len(steps) == 30
    for row in steps:
        spans = [
            r[8] - r[7]
            for rows in job.rows
            for r in rows
            if r[0] == RecordKind.STEP and r[11] & Flag.GPU_TIME and r[4] == row.step
        ]
        assert (row.self_ns + row.wait_ns + row.comm_ns).tolist() == pytest.approx(spans, abs=2)


def test_a_step_is_not_judged_before_its_device_has_finished_it() -> None:
    def step(number: int, flags: int) -> tuple[int, ...]:
        return (3, 0, 0, 0, number, -1, 0, number * 10, number * 10 + 9, 0, 0, flags)

    pool = StepPool(1, grace_steps=0, patience_s=30, patience_rows=1000)
    gpu = int(Flag.GPU_TIME)
    pool.add(records_from_rows(0, [step(0, 0), step(0, gpu), step(1, 0), step(2, 0)]))
    assert [number for number, _ in pool.complete()] == [0]
    pool.add(records_from_rows(0, [step(1, gpu), step(2, gpu)]))
    assert [number for number, _ in pool.complete()] == [1, 2]


def test_a_rank_that_stops_timing_its_device_holds_nobody_up() -> None:
    def step(number: int, flags: int) -> tuple[int, ...]:
        return (3, 0, 0, 0, number, -1, 0, number * 10, number * 10 + 9, 0, 0, flags)

    pool = StepPool(1, grace_steps=0, patience_s=30, patience_rows=1000)
    pool.add(records_from_rows(0, [step(0, 0), step(0, int(Flag.GPU_TIME))]))
    pool.add(records_from_rows(0, [step(number, 0) for number in range(1, 60)]))
    assert [number for number, _ in pool.complete()] == list(range(60))
