"""A job that trains until the file STOP is there; with DIE it fails once, on all ranks.

Every step has two all-reduces. It knows nothing of Paceline.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STOP, DIE = Path(os.environ["STOP"]), Path(os.environ["DIE"])
RANK = int(os.environ["RANK"])


def main() -> None:
    dist.init_process_group("gloo")
    weights = torch.nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    wish = torch.zeros(2)
    while not wish[0]:
        time.sleep(0.02)
        optimizer.zero_grad()
        ((weights - RANK) ** 2).sum().backward()
        dist.all_reduce(weights.grad)
        optimizer.step()
        wish[0], wish[1] = float(STOP.exists()), float(DIE.exists())
        dist.all_reduce(wish, op=dist.ReduceOp.MAX)
        if wish[1]:
            dist.barrier()
            DIE.unlink(missing_ok=True)
            sys.exit(3)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
