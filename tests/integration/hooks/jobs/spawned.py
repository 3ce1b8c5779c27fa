"""A script without a launcher, which starts its ranks itself."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def train(rank: int) -> None:
    store = dist.FileStore(os.environ["STORE"], 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for _ in range(3):
        dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(train, nprocs=2, start_method=os.environ["METHOD"])
