"""Rank 1 is killed in the middle of its backward, while rank 0 waits for its gradients."""

from __future__ import annotations

import os
import signal

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(3):
        x = model(torch.ones(1, 4))
        if step == 2 and dist.get_rank() == 1:
            x.register_hook(lambda grad: os.kill(os.getpid(), signal.SIGKILL))
        x.sum().backward()
        optimizer.step()


main()
