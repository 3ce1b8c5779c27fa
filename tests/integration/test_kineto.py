"""``paceline analyze`` over real traces: a Gloo job recorded here, and GPU jobs of others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.errors import InputError
from paceline_service.cli import analyze
from paceline_service.importers.sources import analyze_paths
from tests.fakes.captures import shared_data

pytestmark = pytest.mark.integration

JOB = """
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function, schedule

directory, rank = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)
dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
model = DistributedDataParallel(torch.nn.Linear(32, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=1, warmup=1, active=4, repeat=1),
    on_trace_ready=lambda p: p.export_chrome_trace(f"{directory}/traces/rank{rank}.json.gz"),
) as profiler:
    for _ in range(6):
        if rank == 1:
            time.sleep(0.15)
        with record_function("forward"):
            loss = model(torch.randn(4, 32)).sum()
        loss.backward()
        optimizer.step()
        dist.all_reduce(torch.ones(4))
        dist.barrier()
        profiler.step()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def gloo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Traces of two ranks of which rank 1 sleeps 0.15 s before each forward."""
    pytest.importorskip("torch", reason="torch is missing: make setup installs it")
    directory = tmp_path_factory.mktemp("gloo")
    (directory / "traces").mkdir()
    script = directory / "job.py"
    script.write_text(JOB)
    ranks = [
        subprocess.Popen([sys.executable, script, directory, str(rank)], stderr=subprocess.PIPE)
        for rank in range(2)
    ]
    for process in ranks:
        _, errors = process.communicate(timeout=100)
        assert process.returncode == 0, errors.decode()[-2000:]
    return directory / "traces"


def test_the_sleeping_rank_of_a_gloo_job_causes_the_waits(gloo: Path) -> None:
    report = analyze_paths([gloo]).report
    assert report["job"] | {"collectives": 0} == {
        "world_size": 2, "ranks_observed": 2, "steps": 4, "collectives": 0,
    }  # fmt: skip
    assert report["data"]["complete"], report["data"]
    facts = report["data"]["trace"]
    # The gradients, the all-reduce and the barrier of each step.
    assert facts["collectives"] == 4 * 3
    first = facts["last_arrivers"][0]
    assert first["rank"] == 1
    assert first["caused_wait_ns"] > 4 * 0.1e9
    assert report["ranks"][1]["self_ns"] > report["ranks"][0]["self_ns"] + 2 * 0.1e9


def test_the_dlrm_job_gives_the_figures_that_were_computed_independently() -> None:
    directory = shared_data("kineto_dlrm_8rank_v100")
    expected = json.loads((directory / "expected.json").read_text())
    report = analyze_paths([directory]).report
    assert report["verdict"] == "insufficient_evidence"
    assert report["data"]["complete"]
    facts = report["data"]["trace"]
    assert facts["collectives"] == expected["n_matched_collectives"]
    assert facts["wait_ns"] == expected["total_wait_all_ranks_us"] * 1000
    assert [(a["rank"], a["collectives"]) for a in facts["last_arrivers"]] == [
        (7, 5), (5, 2), (4, 1),
    ]  # fmt: skip
    assert {a["cause"] for a in facts["last_arrivers"]} == {"host"}
    for row, own in zip(report["ranks"], facts["ranks"], strict=True):
        reference = expected["per_rank"][str(row["rank"])]
        assert row["caused_wait_ns"] == reference["caused_wait_sum_us"] * 1000
        assert row["last_arriver"] == reference["last_by_dur_count"]
        window = reference["own_window"]
        for name, key in (
            ("window_ns", "window_us"), ("compute_ns", "compute_us"), ("idle_ns", "idle_us"),
            ("communication_ns", "comm_us"), ("memory_ns", "mem_us"), ("busy_ns", "busy_us"),
            ("overlap_ns", "overlap_us"), ("exposed_communication_ns", "exposed_comm_us"),
        ):  # fmt: skip
            assert own[name] == window[key] * 1000, name


def test_the_text_tells_the_order_of_caused_waits(capsys: pytest.CaptureFixture[str]) -> None:
    directory = shared_data("kineto_dlrm_8rank_v100")
    assert analyze([str(directory)]) == 3
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "rank 7 35.5 ms (last at 5), rank 5 6.3 ms (last at 2), rank 4 5.0 ms (last at 1)" in text
    )
    assert "cause host" in text


def test_every_trace_of_a_single_rank_is_read() -> None:
    files = sorted(shared_data("kineto_single_rank").glob("*.json.gz"))
    assert files
    for path in files:
        report = analyze_paths([path]).report
        assert report["verdict"] == "insufficient_evidence", path
        assert report["data"]["trace"]["ranks"][0]["window_ns"] > 0, path
        json.dumps(report, allow_nan=False)


def test_a_folder_of_traces_of_different_jobs_is_answered_in_words() -> None:
    # Different world sizes, ranks that are there twice, and traces that tell no rank.
    directory = shared_data("kineto_single_rank")
    with pytest.raises(InputError, match="are both of rank 0 and both begin with step 10"):
        analyze_paths([directory])
