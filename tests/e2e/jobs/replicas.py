"""DDP on four ranks; a bit of one parameter flips on one of them, and nothing else goes wrong.

It knows nothing of Paceline. What may differ by rank does: batches, buffers, an evaluation.
"""

from __future__ import annotations

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 24
FLIPPED_AT, FLIPPED_ON = int(os.environ["FLIPPED_AT"]), int(os.environ["FLIPPED_ON"])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 3)
    )
    model = DistributedDataParallel(net, broadcast_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    for step in range(STEPS):
        time.sleep(0.03)
        optimizer.zero_grad()
        with model.no_sync():  # the first half of the batch is accumulated
            model(torch.randn(16, 32)).square().mean().backward()
        model(torch.randn(16, 32)).square().mean().backward()
        optimizer.step()
        if step == FLIPPED_AT and rank == FLIPPED_ON:
            net[0].weight.data.view(torch.int32)[5, 7] ^= 1 << 12
        if step % 8 == 0 and rank == 0:
            with torch.no_grad():
                net(torch.randn(64, 32))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
