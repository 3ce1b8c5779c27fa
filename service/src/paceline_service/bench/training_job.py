"""A rank of the job that measures the agent: it turns the agent on and off between blocks.

Run by torchrun. Every rank goes through the same shuffled order of conditions:
``off`` and ``null`` train without the agent, ``on`` trains with it. ``null``
against ``off`` shows what the machine's own noise looks like.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler

import paceline
from paceline_service.bench.machine import memory_kib
from paceline_service.bench.pairs import shuffled_rounds
from paceline_service.demo.train import (
    Fault,
    Optimizer,
    TextWindows,
    Transformer,
    endless,
    write_text,
)

WARM_UP_STEPS = 20
SETTLE_STEPS = 2
"""After each change of condition; never timed."""


class Trainer:
    """The demonstration's model and data, one step at a time."""

    def __init__(self, seed: int = 7) -> None:
        torch.manual_seed(seed)
        healthy = Fault("none", active=False, pause_ms=0.0, first_step=0)
        windows = TextWindows(write_text(4000, seed), 48, healthy)
        sampler: DistributedSampler[Any] = DistributedSampler(windows, seed=seed)
        loader = DataLoader(windows, batch_size=8, sampler=sampler, collate_fn=windows.collate)
        self._batches = endless(loader, sampler)
        self._model = DistributedDataParallel(Transformer(96, 4, 2, 48, healthy), bucket_cap_mb=0.5)
        self._optimizer = Optimizer(self._model.parameters(), 2e-3, healthy)

    def step(self) -> None:
        """Train one step."""
        codes, targets = next(self._batches)
        self._optimizer.zero_grad()
        logits = self._model(codes)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()


def main() -> None:
    """Go through all rounds; rank 0 writes what it measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--conditions", nargs="+", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="timed, in each block")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    trainer = Trainer()
    for _ in range(WARM_UP_STEPS):
        trainer.step()
    seconds: dict[str, list[list[float]]] = {name: [] for name in options.conditions}
    memory = {}
    for order in shuffled_rounds(options.conditions, options.rounds, seed=1):
        for condition in order:
            handle = paceline.init(job="bench") if condition == "on" else None
            seconds[condition].append(_block(trainer, options.steps))
            memory[condition] = memory_kib()
            if handle is not None:
                handle.close()
    memories: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(memories, memory)
    if dist.get_rank() == 0:
        options.out.write_text(json.dumps({"seconds": seconds, "memory": memories}))
    dist.destroy_process_group()
    # Without the agent nobody waits for Gloo's threads, which can abort a process that ends now
    # (docs/adr/0011-releases-without-callbacks.md).
    time.sleep(0.2)


def _block(trainer: Trainer, steps: int) -> list[float]:
    for _ in range(SETTLE_STEPS):
        trainer.step()
    dist.barrier()
    times = []
    for _ in range(steps):
        started_s = time.perf_counter()
        trainer.step()
        times.append(time.perf_counter() - started_s)
    return times


if __name__ == "__main__":
    main()
