from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.hooks.kit import free_port

pytestmark = pytest.mark.integration
TIMEOUT_S = 90
NOWHERE = "http://127.0.0.1:9"
JOB = """
import json, os, sys
import torch, torch.distributed as dist
dist.init_process_group("gloo")
weight = torch.nn.Parameter(torch.ones(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(5):
    weight.sum().backward()
    dist.all_reduce(weight.grad)
    optimizer.step()
dist.barrier()
"""
TELL = """
import json, os, sys
json.dump({"pid": os.getpid(), "env": dict(os.environ)}, open(sys.argv[1], "w"))
"""


def environment(directory: Path, **extra: str) -> dict[str, str]:
    kept = {n: v for n, v in os.environ.items() if not n.startswith(("PACELINE", "SLURM"))}
    return {
        **kept,
        "OMP_NUM_THREADS": "1",
        "HOME": str(directory),
        "TMPDIR": str(directory),
        **extra,
    }


def start(command: list[str], directory: Path, *options: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "paceline", "run", *options, "--", *command],
        cwd=directory,
        env=environment(directory, **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(
    command: list[str], directory: Path, *options: str, **env: str
) -> subprocess.CompletedProcess[str]:
    process = start(command, directory, *options, **env)
    try:
        out, err = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", code, *arguments]


def one_rank() -> dict[str, str]:
    return {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": "1",
    }


def test_the_status_of_the_job_is_returned_and_its_output_untouched(tmp_path: Path) -> None:
    code = "import sys; print('from the job'); sys.exit(7)"
    done = run(python(code), tmp_path, PACELINE_URL=NOWHERE)
    assert (done.returncode, done.stdout) == (7, "from the job\n")


def test_a_job_that_a_signal_ended_is_told_as_a_shell_does(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert run(python(code), tmp_path, PACELINE_URL=NOWHERE).returncode == 128 + signal.SIGKILL


def test_a_command_that_is_not_there_is_127(tmp_path: Path) -> None:
    done = run(["no-such-command"], tmp_path, PACELINE_URL=NOWHERE)
    assert done.returncode == 127
    assert "no-such-command" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_job_which_decides(tmp_path: Path, number: signal.Signals) -> None:
    code = (
        "import signal, sys, time\n"
        "def end(n, f): print('got', n, flush=True); sys.exit(3)\n"
        f"signal.signal({int(number)}, end); print('ready', flush=True); time.sleep(60)"
    )
    process = start(python(code), tmp_path, PACELINE_URL=NOWHERE)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, out) == (3, f"got {int(number)}\n")


def test_the_job_is_told_who_it_is_and_never_gets_the_token(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    env = {"PACELINE_URL": NOWHERE, "PACELINE_TOKEN": "secret"}
    assert run(python(TELL, str(told)), tmp_path, "--job", "mine", **env).returncode == 0
    seen = json.loads(told.read_text())["env"]
    assert (seen["PACELINE_JOB"], seen["PACELINE_INJECT"]) == ("mine", "1")
    assert len(seen["PACELINE_RUN_ID"]) == 16
    assert "secret" not in seen.values()
    assert not Path(seen["PACELINE_RUNTIME_DIR"]).exists()


def test_disabled_becomes_the_command_itself(tmp_path: Path) -> None:
    told = tmp_path / "told.json"
    env = {"PACELINE_DISABLE": "1", "PACELINE_TOKEN": "secret"}
    process = start(python(TELL, str(told)), tmp_path, **env)
    _, err = process.communicate(timeout=TIMEOUT_S)
    seen = json.loads(told.read_text())
    assert (process.returncode, err, seen["pid"]) == (0, "", process.pid)
    assert not {"PACELINE_INJECT", "PACELINE_TOKEN"} & set(seen["env"])


def test_a_runtime_directory_that_cannot_be_used_does_not_stop_the_job(tmp_path: Path) -> None:
    env = {"PACELINE_URL": NOWHERE, "PACELINE_RUNTIME_DIR": "/proc/nowhere"}
    done = run(python("print('trained')"), tmp_path, **env)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert "runs without being recorded" in done.stderr


def test_a_collector_that_is_away_leaves_the_job_unharmed_and_keeps_the_records(
    tmp_path: Path,
) -> None:
    rings = tmp_path / "rings"
    env = {"PACELINE_URL": NOWHERE, "PACELINE_RUNTIME_DIR": str(rings), **one_rank()}
    done = run(python(JOB), tmp_path, **env)
    assert done.returncode == 0, done.stderr
    assert "the rest is kept" in done.stderr
    assert str(rings) in done.stderr
    assert any(tmp_path.rglob("spool*"))


def test_part_of_a_larger_job_keeps_event_logs_and_tells_how_to_read_them(tmp_path: Path) -> None:
    env = {"PACELINE_RUNTIME_DIR": str(tmp_path / "rings"), "SLURM_NNODES": "2", **one_rank()}
    done = run(python(JOB), tmp_path, "--job", "part", **env)
    assert done.returncode == 0, done.stderr
    (directory,) = (tmp_path / "paceline-logs").iterdir()
    assert directory.name.startswith("part-")
    assert f"paceline analyze paceline-logs/{directory.name}" in done.stderr
    assert any(directory.iterdir())


def test_a_sidecar_that_runs_on_the_node_is_used_and_no_other_is_started(tmp_path: Path) -> None:
    rings, logs = tmp_path / "rings", tmp_path / "logs"
    options = ["--runtime-dir", str(rings), "--events-dir", str(logs)]
    sidecar = subprocess.Popen(
        [sys.executable, "-m", "paceline", "sidecar", *options],
        env=environment(tmp_path),
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline_s = time.monotonic() + 20
        while not (rings / "sidecar.lock").exists() and time.monotonic() < deadline_s:
            time.sleep(0.05)
        time.sleep(0.2)
        done = run(python(JOB), tmp_path, PACELINE_RUNTIME_DIR=str(rings), **one_rank())
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        asked = run(python("pass"), tmp_path, "--report", "r.json", PACELINE_RUNTIME_DIR=str(rings))
        assert "paceline report" in asked.stderr
    finally:
        sidecar.send_signal(signal.SIGTERM)
        assert sidecar.wait(TIMEOUT_S) == 0
    assert any(logs.iterdir())


def test_a_job_under_torchrun_is_recorded_and_reported_without_any_set_up(tmp_path: Path) -> None:
    script = tmp_path / "tiny.py"
    script.write_text(JOB)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = run([*torchrun, "--nproc-per-node", "2", str(script)], tmp_path, "--report", "r.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").exists(), done.stderr
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["schema"] == "paceline.report/1"
    assert report["job"]["name"] == "tiny"
    assert report["job"]["ranks_observed"] == 2
    assert (report["job"]["steps"], report["job"]["collectives"]) == (5, 5)
    assert report["verdict"] == "insufficient_evidence"
    assert "tiny" in done.stdout
