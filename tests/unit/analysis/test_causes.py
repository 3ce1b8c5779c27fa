from __future__ import annotations

from typing import Any

import pytest

from paceline.vocabulary import Phase, RecordKind
from paceline_service.analysis.report import Finding
from tests.simulator.job import MS, ROW_FIELDS, Fault, Scenario, Simulated, simulate
from tests.simulator.samples import analyse_with, samples

STEP_MS = 39
SLOW = 5


def slow_job(phase: Phase, *, extra_ms: float = 8, ranks: tuple[int, ...] = (SLOW,)) -> Simulated:
    faults = tuple(Fault(rank=r, phase=phase, extra_ms=extra_ms, first=60) for r in ranks)
    return simulate(Scenario(data_parallel=8, steps=160, jitter=0.01, faults=faults))


def finding(job: Simulated, sick: dict[str, Any], *, every: int = 1) -> Finding:
    told = samples(job, {SLOW: sick}, first=60, every=every)
    (found,) = analyse_with(job, told).report().findings
    assert found.ranks == [SLOW]
    return found


def told(found: Finding, words: str) -> bool:
    return any(words in sentence for sentence in found.evidence)


@pytest.mark.parametrize("every", [1, 7])
def test_a_rank_whose_clock_is_held_down_by_heat_is_throttled_with_figures(every: int) -> None:
    hot = {"sm_clock_hz": 1.1e9, "throttle_reasons": ["hw_thermal_slowdown"], "temperature_c": 91}
    found = finding(slow_job(Phase.BACKWARD), hot, every=every)
    assert (found.cause, found.phase) == ("gpu_throttle", "backward")
    assert told(found, "its SM clock was 1.1")
    assert told(found, "1.90 GHz on its 7 peers")
    assert told(found, "HW thermal slowdown was set in")
    assert told(found, "91 C hot, its peers 62 C")
    assert found.action is not None
    assert found.action.startswith(
        "scontrol update nodename=node-1 state=drain reason=paceline-gpu-throttle-rank-5"
    )
    assert "kubectl cordon node-1" in found.action


@pytest.mark.parametrize(
    "reason", ["sw_power_cap", "hw_slowdown", "hw_power_brake", "SW Thermal Slowdown"]
)
def test_every_reason_of_a_lower_clock_is_throttling(reason: str) -> None:
    sick = {"sm_clock_hz": 1.5e9, "throttle_reasons": [reason]}
    assert finding(slow_job(Phase.FORWARD), sick).cause == "gpu_throttle"


def test_a_power_cap_at_full_clock_explains_nothing() -> None:
    found = finding(slow_job(Phase.FORWARD), {"throttle_reasons": ["sw_power_cap"]})
    assert found.cause == "compute"
    assert told(found, "its GPU differs in nothing that was sampled")


def test_what_all_gpus_show_is_nobodys_cause() -> None:
    job = slow_job(Phase.BACKWARD)
    everybody = {rank: {"throttle_reasons": ["hw_thermal_slowdown"]} for rank in range(8)}
    (found,) = analyse_with(job, samples(job, everybody)).report().findings
    assert found.cause == "compute"


def test_a_low_clock_without_a_reason_says_that_it_may_be_locked() -> None:
    found = finding(slow_job(Phase.BACKWARD), {"sm_clock_hz": 1.2e9})
    assert found.cause == "gpu_throttle"
    assert told(found, "clock may be locked")


def test_an_idle_gpus_low_clock_does_not_excuse_a_slow_data_loader() -> None:
    idle = {"sm_clock_hz": 0.3e9, "throttle_reasons": ["gpu_idle"], "gpu_busy_ratio": 0.1}
    assert finding(slow_job(Phase.INPUT), idle).cause == "input"


def test_throttling_told_only_by_the_counter_of_its_time_counts() -> None:
    job = slow_job(Phase.BACKWARD)
    sick = {"sm_clock_hz": 1.2e9, "throttle_hw_thermal_slowdown_ns_total": 45 * MS}
    told_of = samples(job, {SLOW: sick}, first=60)
    for sample in told_of:
        del sample.values["throttle_reasons"]  # type: ignore[attr-defined]
    (found,) = analyse_with(job, told_of).report().findings
    assert found.cause == "gpu_throttle"
    assert told(found, "HW thermal slowdown")


@pytest.mark.parametrize(
    ("sick", "words", "command"),
    [
        ({"xid": 79}, "XID 79 (GPU has fallen off the bus)", "dcgmi diag"),
        ({"xid": 119}, "XID 119 (GSP timeout)", "--gpu-reset"),
        ({"ecc_uncorrected_total": 2}, "uncorrected ECC errors", "--gpu-reset"),
        ({"remapped_rows_pending": 1}, "a row remap waits for a reset", "--gpu-reset"),
        ({"gpu_lost": 1}, "it fell off the bus", "dcgmi diag"),
        ({"pcie_width_lanes": 4}, "4 lanes wide against 16 on its 7 peers; it could have 16",
         "reseat"),
        ({"pcie_generation": 1}, "of generation 1 against 5", "reseat"),
    ],
)  # fmt: skip
def test_damage_is_a_gpu_fault_with_its_remedy(
    sick: dict[str, Any], words: str, command: str
) -> None:
    found = finding(slow_job(Phase.BACKWARD), sick)
    assert found.cause == "gpu_fault"
    assert told(found, words)
    assert found.action is not None
    assert command in found.action


def test_an_xid_of_the_program_itself_is_no_gpu_fault() -> None:
    assert finding(slow_job(Phase.BACKWARD), {"xid": 31}).cause == "compute"


def test_an_xid_long_before_does_not_explain_a_slowdown() -> None:
    job = slow_job(Phase.BACKWARD)
    early = samples(job, {}, first=0)
    first = next(sample for sample in early if sample.rank == SLOW)
    old = type(first)(rank=SLOW, time_ns=first.time_ns - 3_600_000_000_000, values={"xid": 79})
    (found,) = analyse_with(job, [old, *early]).report().findings
    assert found.cause == "compute"


def with_pauses(job: Simulated, phase: Phase, ms: float, *, seq: int, first: int) -> Simulated:
    """Let rank SLOW record a pause of ``ms`` in each of its steps from ``first`` on."""
    start_at = ROW_FIELDS.index("start_ns")
    extra = []
    for row in job.rows[SLOW]:
        if row[0] == RecordKind.STEP and row[4] >= first:
            begin = row[start_at] + 3 * MS
            extra.append((int(RecordKind.PHASE), int(phase), 0, seq, row[4], -1, 0, begin,
                          begin + int(ms * MS), 0, 0, 0))  # fmt: skip
    job.rows[SLOW].extend(extra)
    job.rows[SLOW].sort(key=lambda row: row[4])
    return job


def test_a_rank_that_collects_garbage_for_most_of_its_excess_has_cause_gc() -> None:
    job = with_pauses(slow_job(Phase.FORWARD), Phase.GC, 7, seq=2, first=60)
    found = finding(job, {})
    assert found.cause == "gc"
    assert told(found, "garbage collector stopped it for 7.0 ms per step")
    assert found.action is not None
    assert "gc.freeze" in found.action


def test_pauses_too_short_to_explain_the_excess_are_not_its_cause() -> None:
    job = with_pauses(slow_job(Phase.FORWARD), Phase.GC, 0.5, seq=2, first=60)
    assert finding(job, {}).cause == "compute"


@pytest.mark.parametrize(("seq", "words"), [(1, "had no core"), (2, "interpreter's lock")])
def test_a_starved_process_is_the_hosts_fault(seq: int, words: str) -> None:
    job = with_pauses(slow_job(Phase.FORWARD), Phase.STARVED, 7, seq=seq, first=60)
    found = finding(job, {})
    assert found.cause == "host"
    assert told(found, words)


@pytest.mark.parametrize(
    ("sick", "words"),
    [
        ({"rank_run_queue_ns_total": 20 * MS}, "waited for a CPU"),
        ({"cgroup_cpu_throttled_ns_total": 20 * MS}, "CPU limit stopped it"),
        ({"cpu_steal_ratio": 0.4}, "hypervisor took 40%"),
    ],
)
def test_a_process_that_gets_no_cpu_is_the_hosts_fault(sick: dict[str, Any], words: str) -> None:
    found = finding(slow_job(Phase.FORWARD), sick)
    assert found.cause == "host"
    assert told(found, words)


def test_a_slow_loader_on_a_node_whose_disk_stalls_stays_input_and_says_so() -> None:
    found = finding(slow_job(Phase.INPUT), {"io_stall_us_total": 30_000})
    assert found.cause == "input"
    assert told(found, "waited for I/O")
    assert found.action is not None
    assert "data loader" in found.action


def test_the_nodes_values_serve_all_of_its_ranks() -> None:
    job = slow_job(Phase.FORWARD)
    carrier = samples(job, {4: {"cpu_steal_ratio": 0.4}, 0: {"cpu_steal_ratio": 0.01}})
    (found,) = analyse_with(job, carrier).report().findings
    assert (found.ranks, found.cause) == ([SLOW], "host")
    assert told(found, "hypervisor took 40% of its node's CPU time (its peers 1%)")


def test_a_node_whose_ranks_are_all_held_down_is_one_throttled_node() -> None:
    job = slow_job(Phase.BACKWARD, ranks=(4, 5, 6, 7))
    sick = {r: {"sm_clock_hz": 1.3e9, "throttle_reasons": ["hw_power_brake"]} for r in (4, 5, 6, 7)}
    (found,) = analyse_with(job, samples(job, sick, first=60)).report().findings
    assert (found.ranks, found.nodes, found.cause) == ([4, 5, 6, 7], ["node-1"], "gpu_throttle")
    assert found.action is not None
    assert "reason=paceline-gpu-throttle  #" in found.action


def test_telemetry_of_hostile_kinds_changes_nothing() -> None:
    job = slow_job(Phase.BACKWARD)
    junk = {"sm_clock_hz": float("nan"), "power_w": "hot", "throttle_reasons": 0,
            "xid": ["79"], "temperature_c": float("inf")}  # fmt: skip
    found = finding(job, junk)
    assert found.cause == "compute"
    assert not told(found, "nan")


def test_the_report_is_the_same_however_the_samples_are_cut() -> None:
    job = slow_job(Phase.BACKWARD)
    told_of = samples(job, {SLOW: {"sm_clock_hz": 1.1e9}}, first=60)
    whole = analyse_with(job, told_of).report().to_dict()
    by_rank = sorted(told_of, key=lambda sample: (sample.time_ns, sample.rank))
    assert analyse_with(job, by_rank).report().to_dict() == whole
