"""What the agent costs a rank beside its steps: time a collective, memory, import."""

from __future__ import annotations

import compileall
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median, variance
from typing import Any

import paceline
from paceline.ring.layout import DEFAULT_CAPACITY, file_bytes
from paceline_service.bench.launch import (
    memory,
    quiet_environment,
    refuse_failures,
    run,
    sidecar,
    train,
)
from paceline_service.bench.pairs import difference

TENSORS_APART = {"MALLOC_MMAP_THRESHOLD_": "65536"}
"""glibc's threshold stays where it is instead of growing, so that tensors are mapped one by one."""
IMPORT = """
import sys, time
begun_ns = time.perf_counter_ns()
import paceline
print(time.perf_counter_ns() - begun_ns)
"""


def measure_collective(*, quick: bool, native: bool) -> dict[str, object]:
    """Return what one all_reduce costs the calling thread, us (fake backend), by hook."""
    rounds = 8 if quick else 40
    conditions = ["off", "null", "python", *(["native"] if native else [])]
    with tempfile.TemporaryDirectory(prefix="paceline-bench-", dir=memory()) as directory:
        out = Path(directory) / "out.json"
        environment = {
            **quiet_environment(directory), "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4",
        }  # fmt: skip
        run(
            [sys.executable, "-m", "paceline_service.bench.collective_job",
             "--conditions", *conditions, "--rounds", str(rounds), "--out", str(out)],
            environment,
        )  # fmt: skip
        measured = json.loads(out.read_text())
    refuse_failures(measured["hook_errors"])
    micros, cold = measured["micros"], measured["cold_micros"]
    return {
        "calls": rounds * 500,
        "off_us": round(fmean(micros["off"]), 3),
        "added_us": {
            name: difference(micros[name], micros["off"]).to_dict() for name in conditions[1:]
        },
        "off_cold_us": round(fmean(cold["off"]), 1),
        "added_cold_us": {
            name: difference(cold[name], cold["off"]).to_dict() for name in conditions[1:]
        },
        "added_us_best_block": {
            name: round(min(micros[name]) - min(micros["off"]), 3) for name in conditions[1:]
        },
    }


def measure_memory(*, quick: bool) -> dict[str, object]:
    """Return what the agent adds to the memory of a rank, beside the size of its ring.

    Once with the job's tensors outside of malloc's heap, and once as glibc has it by default.
    """
    _compile_agent()
    launches = 1 if quick else 3
    apart, default = (_ranks(launches, heap) for heap in (TENSORS_APART, {}))
    return {
        "launches": launches,
        "rank_rss_mib": round(fmean(m["rss"] for m in default["off"]) / 1024, 1),
        "added_mib": _added_mib(apart),
        "added_mib_default_heap": _added_mib(default),
        "ring_mib": round(file_bytes(DEFAULT_CAPACITY) / 2**20, 2),
    }


def _ranks(launches: int, heap: Mapping[str, str]) -> dict[str, list[Mapping[str, int]]]:
    found: dict[str, list[Mapping[str, int]]] = {"off": [], "python": []}
    with sidecar() as (environment, _, _):
        for launch in range(launches):
            for condition in ("off", "python") if launch % 2 == 0 else ("python", "off"):
                ranks: Any = train({**environment, **heap}, (condition,), 1, 60)["memory"]
                found[condition] += [of_rank[condition] for of_rank in ranks]
    return found


def _added_mib(found: Mapping[str, list[Mapping[str, int]]]) -> dict[str, float]:
    """Return the difference of the means, and half of its 95 % interval as ``noise``."""
    added = {
        kind: round(
            (fmean(m[kind] for m in found["python"]) - fmean(m[kind] for m in found["off"])) / 1024,
            2,
        )
        for kind in ("rss", "pss", "private")
    }
    spread = sum(variance([m["private"] for m in ranks]) / len(ranks) for ranks in found.values())
    return {**added, "noise": round(1.96 * spread**0.5 / 1024, 2)}


def _compile_agent() -> None:
    """Compile the agent to byte code, as pip does: a checkout need not have any.

    A rank that compiles it itself keeps 0.6 MiB of what the compiler leaves behind.
    """
    compileall.compile_dir(Path(paceline.__file__).parent, quiet=2)


def measure_import(*, quick: bool) -> dict[str, float]:
    """Return how long ``import paceline`` takes in a fresh process, ms."""
    _compile_agent()
    times_ms = []
    for _ in range(5 if quick else 25):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
        )
        times_ms.append(int(done.stdout) / 1e6)
    return {"median_ms": round(median(times_ms), 2), "slowest_ms": round(max(times_ms), 2)}
