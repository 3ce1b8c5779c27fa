"""One DDP and one FSDP2 model, with sleeps at known places, and unusual loops after them."""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

import paceline

SLEEP_S = 0.1
PLACES = ("input", "forward", "loss", "backward", "optimizer", "host")
SAID: dict[str, object] = {}


class Slow(torch.autograd.Function):
    """Identity that sleeps in its backward, or forward, when told to."""

    backward_s = 0.0

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:
        time.sleep(Slow.backward_s)
        return grad


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(3)])
        self.forward_s = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.forward_s)
        return self.layers(Slow.apply(self.layers[0](x)))


class Data(Dataset[torch.Tensor]):
    sleeps = 0.0

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(Data.sleeps)
        return torch.ones(8)


class SlowSGD(torch.optim.SGD):
    sleeps = 0.0

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        time.sleep(SlowSGD.sleeps)
        super().step()


def phases_with_sleeps(model: torch.nn.Module, core: Model, handle: paceline.Handle) -> int:
    """Two quiet steps, then one step for each place to sleep; returns how many steps."""
    optimizer = SlowSGD(model.parameters(), lr=0.01)
    batches = iter(DataLoader(Data(), batch_size=1))
    for place in ("", "", *PLACES):
        Data.sleeps = SLEEP_S if place == "input" else 0.0
        core.forward_s = SLEEP_S if place == "forward" else 0.0
        Slow.backward_s = SLEEP_S if place == "backward" else 0.0
        SlowSGD.sleeps = SLEEP_S if place == "optimizer" else 0.0
        x = next(batches)
        if place == "host":
            time.sleep(SLEEP_S)
        loss = model(x).sum()
        if place == "loss":
            time.sleep(SLEEP_S)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    Data.sleeps = core.forward_s = Slow.backward_s = SlowSGD.sleeps = 0.0
    return 2 + len(PLACES)


def unusual_loops(model: DistributedDataParallel, batches: DataLoader[torch.Tensor]) -> None:
    parameters = list(model.parameters())
    data = iter(batches)

    begin("accumulation")
    optimizer = torch.optim.SGD(parameters, lr=0.01)
    for _ in range(2):
        for micro in range(3):
            x = next(data)
            if micro < 2:
                with model.no_sync():
                    model(x).sum().backward()
            else:
                model(x).sum().backward()
        optimizer.step()

    begin("two_optimizers")
    second = torch.optim.Adam(parameters[:2], lr=0.001)
    for _ in range(3):
        model(next(data)).sum().backward()
        optimizer.step()
        second.step()

    begin("closure")
    x = next(data)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss

    for _ in range(2):
        torch.optim.SGD.step(optimizer, closure)

    begin("optimizer_in_backward")
    each = {p: torch.optim.SGD([p], lr=0.01) for p in parameters}
    handles = [p.register_post_accumulate_grad_hook(lambda p: each[p].step()) for p in parameters]
    for _ in range(2):
        model(next(data)).sum().backward()
    for hook in handles:
        hook.remove()

    begin("scaler_skips")
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for step in range(2):
        loss = model(next(data)).sum()
        scaler.scale(loss * (float("inf") if step == 0 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    begin("evaluation")
    with torch.no_grad():
        for _ in range(3):
            model(next(data))
    model(next(data)).sum().backward()
    optimizer.step()

    begin("forked_loader")
    for x in DataLoader(Data(), batch_size=100, num_workers=2):
        model(x).sum().backward()
        optimizer.step()


def begin(name: str) -> None:
    """Note at which step a loop begins: the collective commits what came before it."""
    dist.barrier()
    SAID[name] = current_step()


def current_step() -> int:
    from paceline.hooks import agent

    assert agent._agent is not None
    assert agent._agent.recorder is not None
    return agent._agent.recorder.clock.step


def main() -> None:
    handle = paceline.init()
    assert paceline.init() is not None
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    core = Model()
    begin("ddp")
    ddp = DistributedDataParallel(core)
    phases_with_sleeps(ddp, core, handle)
    begin("fsdp2")
    sharded = Model()
    mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("shard",))
    for layer in sharded.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    phases_with_sleeps(sharded, sharded, handle)
    unusual_loops(ddp, DataLoader(Data(), batch_size=1))
    begin("by_hand")
    for _ in range(2):
        with handle.phase("input"):
            time.sleep(SLEEP_S)
        ddp(torch.ones(1, 8)).sum().backward()
        handle.step()
    begin("end")
    with open(os.environ["OUT"], "w") as file:
        json.dump(SAID, file)
    dist.destroy_process_group()
    sys.stdout.flush()


main()
