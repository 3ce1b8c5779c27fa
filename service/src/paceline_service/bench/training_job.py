"""A rank of the job that overhead is measured on: tools are switched on and off between blocks.

Run by torchrun. Every rank goes through the same shuffled order of conditions (``conditions``):
``off`` and ``null`` both train bare, so ``null`` against ``off`` shows the machine's own noise.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paceline_service.bench.conditions import CONDITIONS, Condition
from paceline_service.bench.machine import memory_kib
from paceline_service.bench.pairs import shuffled_rounds
from paceline_service.bench.workload import Workload

WARM_UP_STEPS = 20
SETTLE_STEPS = 2
"""After each change of condition; never timed."""


def main() -> None:
    """Go through all rounds; rank 0 writes what it measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("ddp", "fsdp2"), default="ddp")
    parser.add_argument("--conditions", nargs="+", required=True, choices=tuple(CONDITIONS))
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="timed, in each block")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work = Workload(options.model)
    bare = Condition()
    for _ in range(WARM_UP_STEPS):
        work.step(bare)
    seconds: dict[str, list[list[float]]] = {name: [] for name in options.conditions}
    memory: dict[str, dict[str, int]] = {}
    tools = {name: CONDITIONS[name]() for name in options.conditions}
    for order in shuffled_rounds(options.conditions, options.rounds, seed=1):
        for name in order:
            tools[name].begin(work.model)
            seconds[name].append(_block(work, tools[name], options.steps))
            memory[name] = memory_kib()
            tools[name].end()
    memories: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(memories, memory)
    if dist.get_rank() == 0:
        options.out.write_text(json.dumps({"seconds": seconds, "memory": memories}))
    dist.destroy_process_group()
    # Without the agent nobody waits for Gloo's threads, which can abort a process that ends now
    # (docs/adr/0011-releases-without-callbacks.md).
    time.sleep(0.2)


def _block(work: Workload, tool: Condition, steps: int) -> list[float]:
    for _ in range(SETTLE_STEPS):
        with tool.step():
            work.step(tool)
    dist.barrier()
    times = []
    for _ in range(steps):
        started_s = time.perf_counter()
        with tool.step():
            work.step(tool)
        times.append(time.perf_counter() - started_s)
    return times


if __name__ == "__main__":
    main()
