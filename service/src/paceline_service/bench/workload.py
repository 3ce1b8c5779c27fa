"""The two training jobs that overhead is measured on: DDP and FSDP2, over Gloo.

Run by torchrun, imported by nothing but ``training_job``. The sizes give the steps of the
limits on one thread a rank: about 30 ms with 6 collectives, and about 55 ms with 18.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LAYERS = 8
DDP_SHAPE = (448, 128)
"""Rows of a batch and width of a layer."""
FSDP2_SHAPE = (320, 128)


class Sections(Protocol):
    """What a tool wants to be told of a step: its parts."""

    def section(self, name: str) -> AbstractContextManager[object]:
        """Return what is entered for the part ``name``."""


class Workload:
    """A model, its optimizer, and one step of training."""

    def __init__(self, kind: str) -> None:
        torch.manual_seed(7)
        rows, width = {"ddp": DDP_SHAPE, "fsdp2": FSDP2_SHAPE}[kind]
        layers = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
                  for _ in range(LAYERS)]  # fmt: skip
        model = nn.Sequential(*layers, nn.Linear(width, width))
        self.model: nn.Module
        if kind == "ddp":
            self.model = DistributedDataParallel(model, bucket_cap_mb=1)
        else:
            for layer in layers:
                fully_shard(layer, reshard_after_forward=False)
            fully_shard(model, reshard_after_forward=False)
            self.model = model
        self._batch = torch.randn(rows, width)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def step(self, told: Sections) -> None:
        """Train one step on the same batch."""
        self._optimizer.zero_grad()
        with told.section("forward"):
            loss: Tensor = self.model(self._batch).square().mean()
        with told.section("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with told.section("optimizer"):
            self._optimizer.step()
