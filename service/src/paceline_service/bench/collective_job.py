"""One process that calls all_reduce on the fake backend, with the agent and without it.

The fake backend does nothing, so what is left is the host's cost of a call.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from paceline.ring import RingReader
from paceline.ring.layout import HOOK_ERRORS_OFFSET
from paceline.settings import runtime_dir
from paceline_service.bench.conditions import CONDITIONS
from paceline_service.bench.pairs import shuffled_rounds

CALLS_PER_BLOCK = 500
WARM_UP_CALLS = 100
COLD_CALLS = 20
FLUSHED_BYTES = 64 << 20
"""More than the caches hold: what a training job computes between two collectives."""


def main() -> None:
    """Go through all rounds and write microseconds a call, one figure a block."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conditions", nargs="+", required=True, choices=tuple(CONDITIONS))
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    tools = {name: CONDITIONS[name]() for name in options.conditions}
    hook_errors = 0
    for name in options.conditions:  # what is done once is not measured
        tools[name].begin(None)
        tools[name].end()
    _take_rings()
    micros: dict[str, list[float]] = {name: [] for name in options.conditions}
    cold: dict[str, list[float]] = {name: [] for name in options.conditions}
    for order in shuffled_rounds(options.conditions, options.rounds, seed=2):
        for name in order:
            tools[name].begin(None)
            micros[name].append(_block())
            cold[name].append(_cold_call())
            tools[name].end()
            hook_errors += _take_rings()
    measured = {"micros": micros, "cold_micros": cold, "hook_errors": hook_errors}
    options.out.write_text(json.dumps(measured))
    dist.destroy_process_group()


def _block() -> float:
    payload = torch.ones(4)
    for _ in range(WARM_UP_CALLS):
        dist.all_reduce(payload)
    started_ns = time.perf_counter_ns()
    for _ in range(CALLS_PER_BLOCK):
        dist.all_reduce(payload)
    return (time.perf_counter_ns() - started_ns) / CALLS_PER_BLOCK / 1e3


def _cold_call() -> float:
    """Return the median of calls before each of which other memory went through the caches."""
    payload, other = torch.ones(4), torch.ones(FLUSHED_BYTES // 4)
    spent_ns = []
    for _ in range(COLD_CALLS):
        other.add_(1.0)
        started_ns = time.perf_counter_ns()
        dist.all_reduce(payload)
        spent_ns.append(time.perf_counter_ns() - started_ns)
    return median(spent_ns) / 1e3


def _take_rings() -> int:
    """Remove the rings, as no sidecar runs here to do it; returns how many hooks failed."""
    failed = 0
    for path in runtime_dir(os.environ).glob("*.ring"):
        reader = RingReader(path)
        failed += reader.word(HOOK_ERRORS_OFFSET)
        reader.close()
        path.unlink(missing_ok=True)
    return failed


if __name__ == "__main__":
    main()
