"""``paceline analyze`` over traces of a Gloo job recorded here (of others: test_shared_data)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline_service.importers.sources import analyze_paths

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
