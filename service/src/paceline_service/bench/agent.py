"""What the agent costs a rank beside its steps: time a collective, memory, import."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean, median
from typing import Any

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
    micros = measured["micros"]
    return {
        "calls": rounds * 500,
        "off_us": round(fmean(micros["off"]), 3),
        "added_us": {
            name: difference(micros[name], micros["off"]).to_dict() for name in conditions[1:]
        },
        "added_us_best_block": {
            name: round(min(micros[name]) - min(micros["off"]), 3) for name in conditions[1:]
        },
    }


def measure_memory(*, quick: bool) -> dict[str, object]:
    """Return what the agent adds to the memory of a rank, beside the size of its ring."""
    launches = 1 if quick else 3
    found: dict[str, list[Mapping[str, int]]] = {"off": [], "python": []}
    with sidecar() as (environment, _, _):
        for launch in range(launches):
            for condition in ("off", "python") if launch % 2 == 0 else ("python", "off"):
                ranks: Any = train(environment, (condition,), 1, 60)["memory"]
                found[condition] += [of_rank[condition] for of_rank in ranks]
    added = {
        kind: round(
            (fmean(m[kind] for m in found["python"]) - fmean(m[kind] for m in found["off"])) / 1024,
            2,
        )
        for kind in ("rss", "pss", "private")
    }
    return {
        "launches": launches,
        "rank_rss_mib": round(fmean(m["rss"] for m in found["off"]) / 1024, 1),
        "added_mib": added,
        "ring_mib": round(file_bytes(DEFAULT_CAPACITY) / 2**20, 2),
    }


def measure_import(*, quick: bool) -> dict[str, float]:
    """Return how long ``import paceline`` takes in a fresh process, ms."""
    times_ms = []
    for _ in range(5 if quick else 25):
        done = subprocess.run(
            [sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True
        )
        times_ms.append(int(done.stdout) / 1e6)
    return {"median_ms": round(median(times_ms), 2), "slowest_ms": round(max(times_ms), 2)}
