"""A job of short steps in which one rank does not come in one step; it knows nothing of Paceline.

WOUND says what that rank does instead: ``sleep`` (it never comes in time), ``save`` (it saves a
checkpoint that takes as long).
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 60
STANDS_AT = 40
WOUND, _, WOUNDED = os.environ["WOUND"].partition(":")
STANDS_S = float(os.environ["STANDS_S"])


class Slow:
    """Takes long to be written."""

    def __reduce__(self) -> tuple[type, tuple[()]]:
        time.sleep(STANDS_S)
        return dict, ()


def stand_still() -> None:
    time.sleep(STANDS_S)


def main() -> None:
    dist.init_process_group("gloo")
    wounded = os.environ["RANK"] == WOUNDED
    weights = torch.nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    for step in range(STEPS):
        time.sleep(0.02)
        optimizer.zero_grad()
        (weights**2).sum().backward()
        if wounded and step == STANDS_AT:
            if WOUND == "sleep":
                stand_still()
            elif WOUND == "save":
                with tempfile.TemporaryDirectory() as directory:
                    torch.save({"slow": Slow()}, Path(directory) / "checkpoint.pt")
        dist.all_reduce(weights.grad)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
