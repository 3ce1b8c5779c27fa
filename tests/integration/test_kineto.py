"""``paceline analyze`` over traces of a Gloo job recorded here (of others: test_shared_data)."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paceline_service.importers.sources import analyze_paths
from tests.conftest import ROOT

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


def recorded(kind: str) -> dict[str, Any]:
    """Return the report on traces that ``tests/fixtures/kineto/record.py`` recorded."""
    return analyze_paths([ROOT / "tests/fixtures/kineto" / kind]).report


@pytest.mark.parametrize(
    ("kind", "phase", "cause"),
    [("gloo_slow_forward", "forward", "compute"), ("gloo_slow_input", "input", "input")],
)
def test_the_slow_rank_of_a_recorded_job_is_named_with_its_phase(
    kind: str, phase: str, cause: str
) -> None:
    report = recorded(kind)
    assert report["verdict"] == "straggler"
    (finding,) = report["findings"]
    assert (finding["ranks"], finding["phase"], finding["cause"]) == ([2], phase, cause)
    # It takes 10 ms more than some 25.
    assert finding["slowdown"] == pytest.approx(1.4, abs=0.05)
    facts = report["data"]["trace"]
    assert facts["last_arrivers"][0]["rank"] == 2
    assert report["what_if"]["ranks"][0]["rank"] == 2
    assert report["data"]["complete"]


def test_of_a_recorded_healthy_job_nobody_is_named() -> None:
    report = recorded("gloo_healthy")
    assert (report["verdict"], report["findings"]) == ("healthy", [])
    facts = report["data"]["trace"]
    # The gradients and the all-reduce of each step, all paired.
    assert facts["collectives"] == 32 * 2
    assert report["data"]["complete"]
    assert {row["device"] for row in facts["ranks"]} == {"cpu"}
    assert {row["communication_calls"] for row in facts["ranks"]} == {32 * 2}


def test_a_recorded_job_of_which_a_rank_is_missing_accuses_nobody(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        name = f"rank{rank}.json.gz"
        source = ROOT / "tests/fixtures/kineto/gloo_slow_forward" / name
        (tmp_path / name).write_bytes(source.read_bytes())
    report = analyze_paths([tmp_path]).report
    assert report["verdict"] == "insufficient_evidence"
    assert report["data"]["trace"]["last_arrivers"] == []


def test_recorded_traces_say_nothing_of_the_machine() -> None:
    for path in (ROOT / "tests/fixtures/kineto").glob("*/*.json.gz"):
        assert path.stat().st_size < 60_000
        document = json.loads(gzip.decompress(path.read_bytes()))
        assert not set(document) & {"host_name", "traceName", "trace_id", "deviceProperties"}
