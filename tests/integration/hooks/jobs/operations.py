"""Issues one of everything and writes down what it issued, in order."""

from __future__ import annotations

import datetime
import json
import os
import time

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

LATE = 5
LEDGER: list[list[object]] = []
"""Group name, operation, bytes, root or peer (global, -1 none)."""


def issued(group: dist.ProcessGroup, op: str, payload_bytes: int, peer: int = -1) -> None:
    LEDGER.append([group.group_name, op, payload_bytes, peer])


def world_collectives(world: dist.ProcessGroup, rank: int) -> None:
    t = torch.ones(12)  # 48 bytes
    for _ in range(LATE):
        dist.barrier()
        issued(world, "barrier", 0)
        if rank == 1:
            time.sleep(0.03)
        issued(world, "all_reduce", 48)
        dist.all_reduce(t)
    issued(world, "all_reduce", 48)
    work = dist.all_reduce(t, async_op=True)
    time.sleep(0.02)
    work.wait()
    issued(world, "broadcast", 48, 1)
    dist.broadcast(t, src=1)
    issued(world, "reduce", 48, 2)
    dist.reduce(t, dst=2)
    issued(world, "all_gather", 3 * 48)
    dist.all_gather([torch.empty(12) for _ in range(3)], t)
    issued(world, "all_gather", 3 * 48)
    dist.all_gather_into_tensor(torch.empty(36), t)
    issued(world, "reduce_scatter", 48)
    dist.reduce_scatter_tensor(torch.empty(4), t)
    if not torch.__version__.startswith(("2.4.", "2.5.")):  # Gloo could not do it then
        issued(world, "reduce_scatter", 3 * 16)
        dist.reduce_scatter(torch.empty(4), [torch.ones(4) for _ in range(3)])
    issued(world, "all_to_all", 48)
    dist.all_to_all_single(torch.empty(12), t)
    issued(world, "gather", 3 * 48, 0)
    dist.gather(t, [torch.empty(12) for _ in range(3)] if rank == 0 else None, dst=0)
    issued(world, "scatter", 3 * 48, 2)
    dist.scatter(t, [torch.ones(12) for _ in range(3)] if rank == 2 else None, src=2)
    issued(world, "barrier", 0)
    dist.barrier()
    issued(world, "barrier", 0)
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    issued(world, "all_reduce", 2 * 48)
    with _coalescing_manager(world):
        dist.all_reduce(torch.ones(12))
        dist.all_reduce(torch.ones(12))
    issued(world, "all_reduce", 48)
    functional.wait_tensor(functional.all_reduce(t, "sum", world))
    # The first functional collective of a process imports for a second before it is waited for.
    issued(world, "all_gather", 3 * 48)
    gathered = functional.all_gather_tensor(t, 0, world)
    time.sleep(0.02)
    assert gathered.sum() != 0
    issued(world, "all_reduce", 40)
    sparse = torch.sparse_coo_tensor(
        torch.arange(5)[None], torch.ones(5, dtype=torch.float64), (9,)
    )
    dist.all_reduce(sparse)
    with torch.inference_mode():
        issued(world, "all_reduce", 12)
        dist.all_reduce(torch.ones(3))


def point_to_point(world: dist.ProcessGroup, rank: int) -> None:
    t = torch.ones(5)
    for _ in range(2):
        if rank == 0:
            issued(world, "send", 20, 1)
            dist.send(t, 1)
        elif rank == 1:
            issued(world, "recv", 20, 0)
            dist.recv(t, 0)
    if rank == 1:
        issued(world, "send", 20, 0)
        issued(world, "recv", 20, 0)
        ops = [dist.P2POp(dist.isend, t, 0), dist.P2POp(dist.irecv, torch.empty(5), 0)]
    elif rank == 0:
        issued(world, "recv", 20, 1)
        issued(world, "send", 20, 1)
        ops = [dist.P2POp(dist.irecv, torch.empty(5), 1), dist.P2POp(dist.isend, t, 1)]
    if rank < 2:
        for work in dist.batch_isend_irecv(ops):
            work.wait()
    if rank == 2:
        issued(world, "send", 20, 0)
        dist.send(t, 0)
    elif rank == 0:
        issued(world, "recv", 20, 2)
        dist.recv(t)


def main() -> None:
    rank = int(os.environ["RANK"])
    dist.init_process_group("gloo")
    world = dist.group.WORLD
    assert world is not None
    world_collectives(world, rank)
    point_to_point(world, rank)
    pair = dist.new_group([1, 2], group_desc="pair")
    if rank:
        issued(pair, "broadcast", 8, 2)
        dist.broadcast(torch.ones(2), src=2, group=pair)
        issued(pair, "all_reduce", 8)
        dist.all_reduce(torch.ones(2), group=pair)
    dist.destroy_process_group()

    os.environ["MASTER_PORT"] = os.environ["SECOND_PORT"]
    dist.init_process_group("gloo")
    again = dist.group.WORLD
    assert again is not None
    issued(again, "all_reduce", 4)
    dist.all_reduce(torch.ones(1))
    with open(os.environ["OUT"], "w") as file:
        json.dump(LEDGER, file)
    dist.destroy_process_group()


main()
