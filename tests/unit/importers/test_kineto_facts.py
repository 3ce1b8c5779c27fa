"""What traces tell of each rank's time, and of kernels that are of no known name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline_service.importers.sources import analyze_paths
from tests.unit.importers.traces import Json, TraceJob, kernels_of, traces, write_traces


def report(directory: Path, documents: list[Json]) -> dict[str, Any]:
    write_traces(directory, documents)
    return analyze_paths([directory]).report


def notes(answer: dict[str, Any]) -> str:
    return "\n".join(answer["data"]["notes"])


def test_caused_waits_are_the_sum_of_what_the_others_waited(tmp_path: Path) -> None:
    job = TraceJob(slow=1, jitter=0, steps=20)
    answer = report(tmp_path, traces(job))
    # Three others wait for 2 ms in each of 20 steps.
    assert answer["data"]["trace"]["wait_ns"] == pytest.approx(3 * 20 * 2e6, rel=1e-3)
    assert answer["data"]["trace"]["last_arrivers"][0]["caused_wait_ns"] == pytest.approx(
        3 * 20 * 2e6, rel=1e-3
    )
    assert answer["ranks"][1]["caused_wait_ns"] == pytest.approx(3 * 20 * 2e6, rel=1e-3)


def test_the_unions_of_a_rank_add_up(tmp_path: Path) -> None:
    rank = report(tmp_path, traces(TraceJob(slow=1)))["data"]["trace"]["ranks"][0]
    assert rank["busy_ns"] + rank["idle_ns"] == rank["window_ns"]
    assert rank["exposed_communication_ns"] + rank["overlap_ns"] == rank["communication_ns"]
    assert rank["busy_ns"] == rank["compute_ns"] + rank["exposed_communication_ns"]


def test_kernels_of_no_known_name_are_counted_and_told(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1, steps=20))
    for document in documents:
        for event in [e for e in document["traceEvents"] if e["name"] == "gemm"][:3]:
            event["name"] = "void mylib::(anonymous namespace)::fast_all_reduce<float>(float*)"
    answer = report(tmp_path, documents)
    assert (
        "12 kernels look like communication but are of no known name: "
        "mylib::fast_all_reduce<float> (12); they count as computation, and are not paired"
    ) in notes(answer)
    assert answer["data"]["trace"]["unknown_kernels"] == [
        {"name": "mylib::fast_all_reduce<float>", "count": 12}
    ]
    assert answer["data"]["trace"]["last_arrivers"][0]["rank"] == 1


def test_a_kernel_of_any_name_that_a_collectives_call_launched_is_that_collective(
    tmp_path: Path,
) -> None:
    documents = traces(TraceJob(slow=1, steps=20, labelled=True))
    for document in documents:
        for event in kernels_of(document, "AllReduce"):
            event["name"] = "void somebody::secret_kernel<float>(float*)"
        # The check for NaN carries the same arguments, and is none.
        first = kernels_of(document, "AllGather")[0]
        check = {"name": "void checkForNaN<float>(float*)", "ts": first["ts"] - 3, "dur": 1}
        document["traceEvents"].append(first | check)
    answer = report(tmp_path, documents)
    assert answer["data"]["trace"]["collectives"] == 40
    assert answer["data"]["complete"]
    assert answer["data"]["trace"]["unknown_kernels"] == []


def test_the_shares_of_a_job_are_those_of_the_sums_over_its_ranks(tmp_path: Path) -> None:
    facts = report(tmp_path, traces(TraceJob(slow=1, steps=20)))["data"]["trace"]
    job, ranks = facts["job"], facts["ranks"]
    for name in ("window_ns", "compute_ns", "communication_ns", "overlap_ns", "idle_ns"):
        assert job[name] == sum(row[name] for row in ranks)
    assert job["gamma"] == pytest.approx(job["communication_ns"] / job["compute_ns"])
    assert job["exposed_ratio"] == pytest.approx(
        sum(row["exposed_communication_ns"] for row in ranks) / job["window_ns"]
    )
    # Others wait 2 of some 12 ms for rank 1, and each transfer takes 0.2 ms.
    assert ranks[1]["gamma"] == pytest.approx(0.4 / 12, rel=0.05)
    assert ranks[0]["gamma"] == pytest.approx(2.4 / 10, rel=0.05)


def test_collectives_that_ran_without_a_kernel_are_told(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1, steps=20))
    for document in documents:
        for number, kernel in enumerate(kernels_of(document)):
            # Copy engines gather; a call holds the launch of each kernel, and of each copy.
            called = {"cat": "user_annotation", "name": "nccl:_all_gather_base", "args": {}}
            launched = next(
                e for e in document["traceEvents"]
                if e["cat"] == "cuda_runtime"
                and e["args"]["correlation"] == kernel["args"]["correlation"]
            )  # fmt: skip
            document["traceEvents"].append(launched | called | {"ts": launched["ts"] - 1,
                                                                "dur": 12})  # fmt: skip
            if number % 2:
                kernel |= {"name": "Memcpy PtoP (Device -> Device)", "cat": "gpu_memcpy"}
    answer = report(tmp_path, documents)
    assert "80 calls of collectives launched no kernel that is in the traces" in notes(answer)
    assert answer["data"]["trace"]["ranks"][0]["calls_without_kernel"] == 20
    assert answer["data"]["trace"]["last_arrivers"][0]["rank"] == 1
