"""A job of known length: every step of every rank issues one all-reduce of known size by itself.

It knows nothing of Paceline. WOUND says what goes wrong, and on which rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "100"))
STEP_S = float(os.environ.get("STEP_S", "0.02"))
WOUND, _, WOUNDED = os.environ.get("WOUND", "").partition(":")


def main() -> None:
    rank = int(os.environ["RANK"])
    wounded = str(rank) == WOUNDED
    if wounded and WOUND == "late":
        time.sleep(4)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    weights = torch.nn.Parameter(torch.zeros(64))
    optimizer = torch.optim.SGD([weights], lr=0.1)
    first_try = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    for step in range(STEPS):
        time.sleep(STEP_S)
        loss = ((weights - rank) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        if wounded and step == STEPS // 2:
            if WOUND == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if WOUND == "fail" and first_try:
                sys.exit(3)
        dist.all_reduce(weights.grad)
        optimizer.step()
    if rank == 0:
        Path(os.environ["OUT"]).write_text(json.dumps(weights.detach().tolist()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
