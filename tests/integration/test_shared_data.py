"""``paceline analyze`` over the sets of shared/data, against answers computed independently.

Without the data (``PACELINE_SHARED_DATA``, else ../shared/data) these tests are skipped.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline.vocabulary import Op
from paceline_service.cli import analyze
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto.windows import read_windows
from paceline_service.importers.sources import analyze_paths
from tests.fakes.captures import shared_data

pytestmark = pytest.mark.integration
Json = dict[str, Any]

DLRM = "kineto_dlrm_8rank_v100"
SINGLE = {
    # file: rank, world size, what its calls are, how many of them name their group
    "df_index_resolver.json.gz": (1, 2, {"ALL_REDUCE": 2020}, 0),
    "mi250_minitoy_train_ROCm6_2_kineto.json.gz": (0, 1, {}, 0),
    "modded-nanogpt-current-gpu-rank-00-chrome-trace.json.gz":
        (0, 8, {"REDUCE_SCATTER": 38, "ALL_GATHER": 38}, 56),
    "modded-nanogpt-hook-gpu-rank-00-chrome-trace.json.gz":
        (0, 8, {"REDUCE_SCATTER": 38, "ALL_GATHER": 38}, 56),
    "nccl_data.json.gz": (0, 2, {"ALL_REDUCE": 15, "BROADCAST": 6}, 21),
    # All its kernels are named SendRecv, also those of all-reduces: the calls tell. Five were
    # launched before the trace began.
    "negative_queue_rank0_of16_a100.json.gz":
        (0, 16, {"ALL_TO_ALL": 45, "REDUCE_SCATTER": 10, "ALL_REDUCE": 10, "ALL_GATHER": 10,
                 "UNKNOWN": 5}, 0),
    "profile-rank0-trace.2026-02-12.json.gz":
        (0, 8, {"REDUCE_SCATTER": 21, "ALL_GATHER": 21, "ALL_REDUCE": 18}, 40),
    "rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": (0, 1, {}, 0),
    "triton_example.json.gz": (0, 1, {}, 0),
}  # fmt: skip


def expected_of(directory: Path) -> Json:
    document: Json = json.loads((directory / "expected.json").read_text())
    return document


@pytest.fixture(scope="module")
def dlrm() -> Json:
    """The report on the eight DLRM traces."""
    return analyze_paths([shared_data(DLRM)]).report


def test_of_the_dlrm_job_one_step_names_nobody_but_tells_the_order_of_caused_waits(
    dlrm: Json,
) -> None:
    expected = expected_of(shared_data(DLRM))
    assert dlrm["verdict"] == "insufficient_evidence"
    assert dlrm["findings"] == []
    assert dlrm["data"]["complete"]
    facts = dlrm["data"]["trace"]
    assert facts["collectives"] == expected["n_matched_collectives"]
    assert facts["wait_ns"] == expected["total_wait_all_ranks_us"] * 1000
    assert [(a["rank"], a["collectives"]) for a in facts["last_arrivers"]] == [
        (7, 5), (5, 2), (4, 1),
    ]  # fmt: skip
    assert {a["cause"] for a in facts["last_arrivers"]} == {"host"}
    for one in facts["last_arrivers"]:
        reference = expected["per_rank"][str(one["rank"])]
        assert one["caused_wait_ns"] == reference["caused_wait_sum_us"] * 1000
        assert one["host_late"] == reference["late_cause_counts"]["host_late"]
        assert one["gpu_busy"] == 0
    for row in dlrm["ranks"]:
        reference = expected["per_rank"][str(row["rank"])]
        assert row["caused_wait_ns"] == reference["caused_wait_sum_us"] * 1000
        assert row["last_arriver"] == reference["last_by_dur_count"]


def test_of_the_dlrm_job_the_unions_of_every_rank_are_those_computed_independently(
    dlrm: Json,
) -> None:
    expected = expected_of(shared_data(DLRM))
    for own in dlrm["data"]["trace"]["ranks"]:
        window = expected["per_rank"][str(own["rank"])]["own_window"]
        for name, key in (
            ("window_ns", "window_us"), ("compute_ns", "compute_us"), ("idle_ns", "idle_us"),
            ("communication_ns", "comm_us"), ("memory_ns", "mem_us"), ("busy_ns", "busy_us"),
            ("overlap_ns", "overlap_us"), ("exposed_communication_ns", "exposed_comm_us"),
        ):  # fmt: skip
            assert own[name] == window[key] * 1000, name
        assert own["gamma"] == pytest.approx(window["comm_us"] / window["compute_us"])
        assert own["overlap_ratio"] == pytest.approx(window["overlap_us"] / window["comm_us"])
        assert own["idle_ratio"] == pytest.approx(window["idle_us"] / window["window_us"])


def test_the_text_on_the_dlrm_job_tells_the_order_of_caused_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert analyze([str(shared_data(DLRM))]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "rank 7 35.5 ms (last at 5), rank 5 6.3 ms (last at 2), rank 4 5.0 ms (last at 1)" in text
    )
    assert "cause host" in text
    assert "exposed communication 40 %" in text


def test_the_table_of_single_ranks_knows_every_file() -> None:
    directory = shared_data("kineto_single_rank")
    assert sorted(SINGLE) == sorted(path.name for path in directory.glob("*.json.gz"))


@pytest.mark.parametrize("name", SINGLE)
def test_a_trace_of_a_single_rank_is_insufficient_and_measured_as_hta_defines_it(
    name: str,
) -> None:
    path = shared_data("kineto_single_rank") / name
    rank, world_size, operations, named = SINGLE[name]
    report = analyze_paths([path]).report
    json.dumps(report, allow_nan=False)
    assert report["verdict"] == "insufficient_evidence"
    assert report["findings"] == []
    assert report["job"]["world_size"] == world_size
    facts = report["data"]["trace"]
    (own,) = facts["ranks"]
    assert (own["rank"], own["device"], own["files"]) == (rank, "gpu", [name])
    assert facts["unknown_kernels"] == []
    mine = measured(path)
    assert own["communication_calls"] == mine.pop("calls") == sum(operations.values())
    # A double holds a time since 1970 to 0.25 us, so a few ns an event get lost.
    lost_ns = 5 * mine.pop("events")
    assert {key: own[key] for key in mine} == pytest.approx(mine, abs=lost_ns)
    (window,), _ = read_windows([path], Faults())
    calls = window[rank].calls
    assert Counter(Op(op).name for op in calls.op.tolist()) == operations
    assert sum(bool(label.group_name) for label in calls.labels) == named


def measured(path: Path) -> Json:
    """Return the unions of a trace in ns, from its JSON alone.

    By the definitions of Holistic Trace Analysis: idle is the span of the GPU's activities less
    their union; of communication and computation each is merged first, and overlap is what the two
    have in common.
    """
    document = json.loads(gzip.decompress(path.read_bytes()))
    talking, computing, every = [], [], []
    for event in document["traceEvents"]:
        category = str(event.get("cat")).lower()
        if event.get("ph") != "X" or category not in ("kernel", "gpu_memcpy", "gpu_memset"):
            continue
        span = (event["ts"], event["ts"] + event["dur"])
        every.append(span)
        if category == "kernel":
            (talking if "nccl" in event["name"].lower() else computing).append(span)
    busy, talk, compute = merged(every), merged(talking), merged(computing)
    window = max(end for _, end in every) - min(start for start, _ in every)
    # |A and B| = |A| + |B| - |A or B|
    overlap = length(talk) + length(compute) - length(merged(talking + computing))
    return {
        "calls": len(talking),
        "events": len(every),
        "window_ns": window * 1000,
        "compute_ns": length(compute) * 1000,
        "communication_ns": length(talk) * 1000,
        "busy_ns": length(busy) * 1000,
        "overlap_ns": overlap * 1000,
        "exposed_communication_ns": (length(talk) - overlap) * 1000,
        "idle_ns": (window - length(busy)) * 1000,
    }


def merged(spans: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of intervals, ascending."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def length(spans: list[tuple[float, float]]) -> float:
    """Return how long intervals are together."""
    return sum(end - start for start, end in spans)


def test_a_folder_of_traces_of_different_jobs_is_answered_in_words() -> None:
    # Different world sizes, ranks that are there twice, and traces that tell no rank.
    directory = shared_data("kineto_single_rank")
    with pytest.raises(InputError, match="are both of rank 0 and both begin with step 10"):
        analyze_paths([directory])


def test_the_published_pipeline_gives_the_published_figures() -> None:
    directory = shared_data("straggler_analysis_ST")
    expected = expected_of(directory)
    report = analyze_paths([directory]).report
    assert report["verdict"] == "stage_imbalance"
    finding = report["findings"][0]
    assert finding["ranks"] == [6, 7]
    assert finding["slowdown"] == pytest.approx(expected["stage_ratio"]["3"], rel=0.01)
    stages = report["what_if"]["stages"]
    for stage, seconds in expected["stage_mean_compute_s"].items():
        assert stages[int(stage)]["work_ns"] / 1e9 == pytest.approx(seconds, rel=0.01)
    published = expected["published"]
    assert report["what_if"]["m_s"] == pytest.approx(published["Ms"], abs=0.0005)
    assert report["what_if"]["m_w"] == pytest.approx(published["Mw"], abs=0.0005)
    assert report["what_if"]["slowdown"] == pytest.approx(
        published["blocking_slowdown"], abs=0.0005
    )
    evidence = " ".join(finding["evidence"])
    assert f"M_S = {published['Ms']:.2f}" in evidence
    assert f"M_W = {published['Mw']:.2f}" in evidence


@pytest.mark.parametrize(
    ("incident", "cause", "says"),
    [
        ("gpu_error_2nd", "gpu_fault", "completion lag"),
        ("lock_gil_1st", "host", "enqueue lag"),
    ],
)
def test_the_published_hangs_name_exactly_the_injected_ranks(
    incident: str, cause: str, says: str
) -> None:
    directory = shared_data("flight_recorder_16rank")
    expected = expected_of(directory)["incidents"][incident]
    report = analyze_paths([directory / incident]).report
    assert report["verdict"] == "hang"
    assert [finding["ranks"] for finding in report["findings"]] == [expected["fault_ranks"]]
    assert report["findings"][0]["cause"] == cause
    assert says in report["findings"][0]["evidence"][0]
    assert report["job"]["collectives"] == expected["total_pending"]


def test_of_eight_recorded_pipeline_ranks_the_last_stage_is_slowest() -> None:
    report = analyze_paths([shared_data("primus_pp8")]).report
    assert report["verdict"] == "stage_imbalance"
    (finding,) = report["findings"]
    assert finding["ranks"] == [7]
    assert finding["slowdown"] == pytest.approx(1.087, abs=0.001)
    # The first iteration compiles.
    assert (finding["first_step"], finding["last_step"]) == (2, 20)
    timings = report["data"]["timings"]
    assert timings["warm_up"] == [1]
    assert timings["stages"][7]["ratio"] == pytest.approx(1.087, abs=0.0005)


@pytest.mark.parametrize(
    ("name", "world_size", "reports", "each"),
    [
        ("gpt2-meg_meg_gpt2_base_n4_dp1_tp4_pp4-1809579.out", 16, 20, 10),
        ("gpt2-meg_meg_gpt2_base_n8_dp1_tp4_pp8-1809562.out", 32, 20, 10),
        ("superbench_megatron_deepspeed.log", 16, 5, 1),
    ],
)
def test_recorded_logs_without_times_of_each_rank_accuse_nobody(
    name: str, world_size: int, reports: int, each: int
) -> None:
    report = analyze_paths([shared_data("megatron_logs") / name]).report
    assert report["verdict"] == "insufficient_evidence"
    assert report["findings"] == []
    assert report["job"]["world_size"] == world_size
    timings = report["data"]["timings"]
    assert (timings["reports"], timings["iterations_per_report"]) == (reports, each)


def test_one_record_of_the_inspector_is_read_and_is_no_evidence() -> None:
    path = shared_data("nccl") / "nccl_inspector_one_record.jsonl"
    report = analyze_paths([path]).report
    assert report["verdict"] == "insufficient_evidence"
    assert (report["job"]["world_size"], report["job"]["ranks_observed"]) == (3, 1)
    # Its one collective took 5,663 us.
    assert report["ranks"][1]["self_ns"] == pytest.approx(5_663_000, rel=0.01)
