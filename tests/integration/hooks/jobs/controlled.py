"""A job that trains until it is told to stop; LOOP says how its steps look, on which rank.

Every step has the same collectives in the same order, so a collective's number tells its step.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
LOOP = os.environ["LOOP"]
STOP = Path(os.environ["OUT"]).with_name("stop")


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(8, 8)] * 2))
    parameters = list(model.parameters())
    optimizers = [torch.optim.SGD(parameters, lr=0.01)]
    if LOOP == "optimizers":
        optimizers = [torch.optim.SGD([one], lr=0.01) for one in parameters]
    if LOOP == "without" and RANK == 1:
        optimizers = []
    message = torch.zeros(4)
    steps = 0
    go_on = torch.ones(1)
    while go_on.item():
        steps += 1
        time.sleep(0.004)
        dist.all_reduce(message)  # comes before any work, as the last step's metrics do
        for micro in range(3 if LOOP == "accumulation" else 1):
            if LOOP == "accumulation" and micro < 2:
                with model.no_sync():
                    model(torch.ones(2, 8)).sum().backward()
            else:
                model(torch.ones(2, 8)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if LOOP == "messages":
            # Whom it is from shows only when it is there: the receiver counts it then.
            if RANK == 0:
                dist.send(message, 1)
            else:
                dist.recv(message)
        elif LOOP == "without":
            handles = [dist.all_reduce(torch.ones(2), async_op=True) for _ in range(2)]
            for handle in handles:
                handle.wait()
        go_on.fill_(float(not STOP.exists()))
        dist.all_reduce(go_on, op=dist.ReduceOp.MIN)
    Path(os.environ["OUT"]).write_text(json.dumps({"steps": steps}))
    dist.destroy_process_group()


main()
