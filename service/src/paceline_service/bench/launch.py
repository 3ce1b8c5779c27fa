"""Starting a measured job, with a sidecar that sends to a sink beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.errors import InputError
from paceline_service.bench.sink import Sink
from paceline_service.demo.processes import stop, without_paceline
from paceline_service.demo.session import SHARED_MEMORY

RANKS = 2
"""One a core of the smallest machine that this runs on."""
JOB_TIMEOUT_S = 1200.0


@contextmanager
def sidecar() -> Iterator[tuple[dict[str, str], Sink, int]]:
    """Run a sidecar that sends to a sink; gives the ranks' environment, the sink, its pid."""
    sink = Sink()
    with tempfile.TemporaryDirectory(
        prefix="paceline-bench-", dir=memory(), ignore_cleanup_errors=True
    ) as directory:
        environment = quiet_environment(directory)
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", "sidecar", "--url", sink.url],
            env={
                **environment,
                "PACELINE_TOKEN": "bench",
                "PACELINE_SPOOL_DIR": str(Path(directory) / "spool"),
            },
            stdin=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            yield environment, sink, process.pid
        finally:
            stop(process)
            sink.close()


def train(
    environment: Mapping[str, str],
    conditions: Sequence[str],
    rounds: int,
    steps: int,
    *,
    model: str = "ddp",
    launcher: Sequence[str] = (),
) -> Any:
    """Run ``training_job`` and return what its rank 0 wrote.

    Args:
        environment: of the ranks.
        conditions: names of ``conditions.CONDITIONS``.
        rounds: how often each condition is measured.
        steps: timed steps in a block.
        model: ``ddp`` or ``fsdp2``.
        launcher: the command up to the job's own arguments; empty: torchrun.
    """
    out = Path(environment["PACELINE_RUNTIME_DIR"]) / "out.json"
    torchrun = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(RANKS), "-m", "paceline_service.bench.training_job",
    ]  # fmt: skip
    run(
        [
            *(launcher or torchrun), "--model", model, "--conditions", *conditions,
            "--rounds", str(rounds), "--steps", str(steps), "--out", str(out),
        ],
        environment,
    )  # fmt: skip
    return json.loads(out.read_text())


def run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a measured job to its end.

    Raises:
        InputError: it failed.
    """
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=JOB_TIMEOUT_S
    )
    if done.returncode != 0:
        raise InputError(f"a measured job failed ({done.returncode}):\n{done.stderr[-3000:]}")


def build_native_hook() -> bool:
    """Build the native hook where a compiler is; return whether it is there now."""
    code = "import os, torch, paceline.hooks.native.build as b; b.build(torch, os.environ)"
    return subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def refuse_failures(hook_errors: int) -> None:
    """Raise InputError where hooks failed: one that gives up is quick, which is not asked."""
    if hook_errors:
        raise InputError(f"{hook_errors} hooks failed while they were measured")


def quiet_environment(directory: str) -> dict[str, str]:
    """Return the environment of a measured process: one thread, nothing of an outer Paceline."""
    return {
        **without_paceline(os.environ),
        "OMP_NUM_THREADS": "1",
        "PACELINE_RUNTIME_DIR": directory,
    }


def memory() -> str | None:
    """Return a directory in memory, None where there is none."""
    return str(SHARED_MEMORY) if os.access(SHARED_MEMORY, os.W_OK) else None
