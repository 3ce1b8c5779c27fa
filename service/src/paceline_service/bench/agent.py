"""What the agent costs a job: step time, time a collective, memory a rank."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, median
from typing import Any

from paceline.errors import InputError
from paceline.ring.layout import DEFAULT_CAPACITY, file_bytes
from paceline_service.bench.machine import cpu_s
from paceline_service.bench.pairs import against, difference
from paceline_service.bench.sink import Sink
from paceline_service.demo.command import RANKS, SHARED_MEMORY
from paceline_service.demo.processes import stop, without_paceline

JOB_TIMEOUT_S = 900.0
SENDING_S = 2.0
"""A sidecar sends what it has within a second."""


def measure_step_time(*, quick: bool) -> dict[str, object]:
    """Return the ratio of step times on a 4-rank Gloo job, and the sidecar's own use of CPU."""
    rounds, steps = (6, 8) if quick else (40, 15)
    conditions = ("off", "on", "null")
    with _sidecar() as (environment, sink, sidecar_pid):
        before_cpu_s, before_s = cpu_s(sidecar_pid), time.perf_counter()
        measured = _train(environment, conditions, rounds, steps)
        sidecar_cpu_s = cpu_s(sidecar_pid) - before_cpu_s
        wall_s = time.perf_counter() - before_s
        time.sleep(SENDING_S)
        frames, records, wire_bytes = sink.frames, sink.records, sink.wire_bytes
        _refuse_failures(sink.hook_errors)
    if not records:
        raise InputError("the sidecar sent nothing, so an agent that works was not measured")
    means = {n: [fmean(block) for block in blocks] for n, blocks in measured["seconds"].items()}
    medians = {n: [median(block) for block in blocks] for n, blocks in measured["seconds"].items()}
    return {
        "ranks": RANKS,
        "rounds": rounds,
        "steps_per_block": steps,
        "step_ms": {name: round(fmean(values) * 1e3, 3) for name, values in means.items()},
        "on_to_off": against(means, "on", "off")["ratio"],
        "null_to_off": against(means, "null", "off")["ratio"],
        "on_to_off_of_medians": against(medians, "on", "off")["ratio"],
        "null_to_off_of_medians": against(medians, "null", "off")["ratio"],
        "sidecar_cpu_ratio": round(sidecar_cpu_s / wall_s, 4),
        "sent": {"frames": frames, "records": records, "wire_bytes": wire_bytes},
    }


def measure_collective(*, quick: bool) -> dict[str, object]:
    """Return what one all_reduce costs the calling thread, us (fake backend)."""
    rounds = 8 if quick else 40
    with tempfile.TemporaryDirectory(prefix="paceline-bench-", dir=_memory()) as directory:
        out = Path(directory) / "out.json"
        environment = {
            **_quiet_environment(directory), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4",
        }  # fmt: skip
        _run(
            [sys.executable, "-m", "paceline_service.bench.collective_job",
             "--rounds", str(rounds), "--out", str(out)],
            environment,
        )  # fmt: skip
        measured = json.loads(out.read_text())
    _refuse_failures(measured["hook_errors"])
    micros = measured["micros"]
    return {
        "calls": rounds * 500,
        "off_us": round(fmean(micros["off"]), 3),
        "added_us": difference(micros["on"], micros["off"]).to_dict(),
        "null_us": difference(micros["null"], micros["off"]).to_dict(),
        "added_us_best_block": round(min(micros["on"]) - min(micros["off"]), 3),
    }


def measure_memory(*, quick: bool) -> dict[str, object]:
    """Return what the agent adds to the memory of a rank, beside the size of its ring."""
    launches = 1 if quick else 3
    found: dict[str, list[Mapping[str, int]]] = {"off": [], "on": []}
    with _sidecar() as (environment, _, _):
        for launch in range(launches):
            for condition in ("off", "on") if launch % 2 == 0 else ("on", "off"):
                ranks = _train(environment, (condition,), 1, 60)["memory"]
                found[condition] += [of_rank[condition] for of_rank in ranks]
    added = {
        kind: round(
            (fmean(m[kind] for m in found["on"]) - fmean(m[kind] for m in found["off"])) / 1024, 2
        )
        for kind in ("rss", "pss", "private")
    }
    return {
        "launches": launches,
        "rank_rss_mib": round(fmean(m["rss"] for m in found["off"]) / 1024, 1),
        "added_mib": added,
        "ring_mib": round(file_bytes(DEFAULT_CAPACITY) / 2**20, 2),
    }


@contextmanager
def _sidecar() -> Iterator[tuple[dict[str, str], Sink, int]]:
    """Run a sidecar that sends to a sink; gives the ranks' environment."""
    sink = Sink()
    with tempfile.TemporaryDirectory(
        prefix="paceline-bench-", dir=_memory(), ignore_cleanup_errors=True
    ) as directory:
        environment = _quiet_environment(directory)
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


def _train(
    environment: Mapping[str, str], conditions: Sequence[str], rounds: int, steps: int
) -> Any:
    out = Path(environment["PACELINE_RUNTIME_DIR"]) / "out.json"
    _run(
        [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", str(RANKS), "-m", "paceline_service.bench.training_job",
            "--conditions", *conditions, "--rounds", str(rounds), "--steps", str(steps),
            "--out", str(out),
        ],
        environment,
    )  # fmt: skip
    return json.loads(out.read_text())


def _refuse_failures(hook_errors: int) -> None:
    if hook_errors:
        raise InputError(
            f"{hook_errors} hooks failed while they were measured; one that gives up is quick, "
            "but that is not what is asked"
        )


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command, env=dict(environment), capture_output=True, text=True, timeout=JOB_TIMEOUT_S
    )
    if done.returncode != 0:
        raise InputError(f"a measured job failed ({done.returncode}):\n{done.stderr[-3000:]}")


def _quiet_environment(directory: str) -> dict[str, str]:
    return {
        **without_paceline(os.environ),
        "OMP_NUM_THREADS": "1",
        "PACELINE_RUNTIME_DIR": directory,
    }


def _memory() -> str | None:
    return str(SHARED_MEMORY) if os.access(SHARED_MEMORY, os.W_OK) else None
