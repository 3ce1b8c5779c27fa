"""Causes from what real GPUs said of themselves (shared data; skipped without it)."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.vocabulary import Phase
from paceline_service.analysis.report import Finding
from tests.fakes.captures import fake_gpu, query_trees, shared_data
from tests.simulator.job import Fault, Scenario, simulate
from tests.simulator.samples import analyse_with, samples

GPUD = "gpu_telemetry/gpud/nvidia-smi-query.535.154.05.out.1.valid"
EXPORTER = "gpu_telemetry/nvidia_gpu_exporter/linux-x86_64__nvidia-{}__590.48.01.txt"
SLOW = 5


def values_of(gpu: dict[str, Any]) -> dict[str, Any]:
    """Return a captured GPU as a sample; throttling as NVML's mask."""
    busy = gpu.get("busy_percent")
    told = {
        "sm_clock_hz": gpu["sm_mhz"] * 1e6,
        "throttle_reasons": gpu["reasons"],
        "temperature_c": gpu["temperature_c"],
        "power_w": gpu["power_mw"] / 1000,
        "gpu_busy_ratio": busy[0] / 100 if busy else None,
    }
    return {name: value for name, value in told.items() if value is not None}


def finding(own: dict[str, Any], peers: dict[str, Any], phase: Phase) -> Finding:
    fault = Fault(rank=SLOW, phase=phase, extra_ms=8, first=60)
    job = simulate(Scenario(data_parallel=8, steps=140, jitter=0.01, faults=(fault,)))
    sick = {rank: own if rank == SLOW else peers for rank in range(8)}
    (found,) = analyse_with(job, samples(job, sick)).report().findings
    assert found.ranks == [SLOW]
    return found


def captured(name: str) -> list[dict[str, Any]]:
    return [values_of(fake_gpu(tree)) for tree in query_trees(shared_data(name).read_text())]


@pytest.mark.parametrize("model", ["h200", "h100-80gb-hbm3"])
def test_a_gpu_that_idles_for_want_of_data_is_not_called_throttled(model: str) -> None:
    idle, load = captured(EXPORTER.format(model))
    assert finding(idle, load, Phase.INPUT).cause == "input"
    assert finding(idle, load, Phase.FORWARD).cause == "compute"


@pytest.mark.parametrize("model", ["h200", "h100-80gb-hbm3"])
def test_loaded_gpus_that_are_alike_explain_nothing(model: str) -> None:
    _, load = captured(EXPORTER.format(model))
    assert finding(load, load, Phase.BACKWARD).cause == "compute"


def test_the_captured_software_power_cap_counts_where_the_clock_is_lower_than_its_peers() -> None:
    capped = [one for one in captured(GPUD) if one["throttle_reasons"] & 0x4]
    assert capped, "the capture shows a SW power cap"
    own = {**capped[0], "gpu_busy_ratio": 1.0}
    faster = {**own, "throttle_reasons": 0, "sm_clock_hz": own["sm_clock_hz"] * 1.3}
    found = finding(own, faster, Phase.BACKWARD)
    assert found.cause == "gpu_throttle"
    assert any("SW power cap was set" in sentence for sentence in found.evidence)
    assert finding(own, own, Phase.BACKWARD).cause == "compute"
