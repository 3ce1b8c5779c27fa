"""Ways of parallel training on four ranks, a few steps each, beside torch's Flight Recorder."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import paceline
from paceline.hooks import agent

warnings.simplefilter("ignore")
STEPS = 2
WIDTH = 16
BATCH = 4
MICRO = 4
SAID: dict[str, object] = {}
FIRST: dict[str, int] = {}
RANK = int(os.environ["RANK"])


class Model(torch.nn.Module):
    """Two blocks, each of two layers without biases: 4 x WIDTH x WIDTH weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Block(), Block()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.down = torch.nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(torch.relu(self.up(x)))


def clock():  # type: ignore[no-untyped-def]
    assert agent._agent is not None
    assert agent._agent.recorder is not None
    return agent._agent.recorder.clock


def begin(name: str) -> None:
    """Note at which step a case begins: the collective commits what came before it."""
    dist.barrier()
    FIRST[name] = clock().step


def train(
    name: str, model: torch.nn.Module, optimizers: list[torch.optim.Optimizer] | None = None
) -> None:
    optimizers = optimizers or [torch.optim.SGD(model.parameters(), lr=0.01)]
    begin(name)
    for _ in range(STEPS):
        model(torch.ones(BATCH, WIDTH)).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def data_parallel() -> None:
    train("static_graph", DistributedDataParallel(Model(), static_graph=True))

    model = DistributedDataParallel(Model())
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    train("fp16_hook", model)

    model = DistributedDataParallel(Model())
    state = powerSGD_hook.PowerSGDState(
        None, 1, start_powerSGD_iter=1, use_error_feedback=False, warm_start=False
    )
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    train("power_sgd", model)

    model = DistributedDataParallel(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    begin("no_sync")
    for _ in range(STEPS):
        with model.no_sync():
            for _ in range(3):
                model(torch.ones(BATCH, WIDTH)).sum().backward()
        model(torch.ones(BATCH, WIDTH)).sum().backward()
        with torch.no_grad():
            model(torch.ones(BATCH, WIDTH))  # a look before the update
        optimizer.step()

    model = DistributedDataParallel(Model())
    zero = ZeroRedundancyOptimizer(model.parameters(), torch.optim.SGD, lr=0.01)
    train("zero", model, [zero])

    model = DistributedDataParallel(Model())
    core = model.module
    two = [torch.optim.AdamW(core.first.parameters()), torch.optim.SGD(core.second.parameters())]
    train("two_optimizers", model, two)


def fully_sharded() -> None:
    model = Model()
    mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("shard",))
    for block in (model.first, model.second):
        fully_shard(block, mesh=mesh)
    train("fsdp2", fully_shard(model, mesh=mesh))
    replicated = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicas", "shards"))
    train("hybrid", fully_shard(Model(), mesh=replicated))

    policy = ModuleWrapPolicy({Block})
    device = torch.device("cpu")
    train("fsdp1", FullyShardedDataParallel(Model(), auto_wrap_policy=policy, device_id=device))


def two_dimensions() -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = Model()
    plan = {
        f"{block}.{layer}": style
        for block in ("first", "second")
        for layer, style in (("up", ColwiseParallel()), ("down", RowwiseParallel()))
    }
    parallelize_module(model, mesh["tp"], plan)
    train("tensor_parallel", model)
    train("two_dimensions", fully_shard(model, mesh=mesh["dp"]))


def pipelines() -> None:
    torch.manual_seed(0)
    layer = Block()
    for name, kind in (("gpipe", ScheduleGPipe), ("one_f_one_b", Schedule1F1B)):
        stage = PipelineStage(layer, RANK, 4, torch.device("cpu"))
        schedule = kind(stage, MICRO, loss_fn=lambda out, target: (out - target).sum())
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01)
        begin(name)
        for _ in range(STEPS):
            x = torch.ones(MICRO * 2, WIDTH)
            if RANK == 0:
                schedule.step(x)
            elif RANK == 3:
                schedule.step(target=x)
            else:
                schedule.step()
            optimizer.step()
            optimizer.zero_grad()


def compiled() -> None:
    def loss(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        gathered = functional.all_gather_tensor(x @ weight, 0, dist.group.WORLD)
        return functional.all_reduce(gathered, "sum", dist.group.WORLD).sum()

    weight = torch.nn.Parameter(torch.ones(WIDTH, WIDTH))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    whole = torch.compile(loss, backend="aot_eager", fullgraph=True)
    begin("functional")
    for _ in range(STEPS):
        with torch.no_grad():
            whole(torch.ones(1, WIDTH), weight)
        (weight * 2).sum().backward()
        optimizer.step()
    model = torch.compile(DistributedDataParallel(Model()), backend="aot_eager")
    train("compiled_ddp", model)


def without_optimizer() -> None:
    begin("without_optimizer")
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    for _ in range(STEPS):
        loss = (weight * 2).sum()
        if RANK != 3:
            loss.backward()
        dist.all_reduce(torch.ones(8))
        if RANK != 3:
            optimizer.step()


def main() -> None:
    paceline.init()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    cases: list[Callable[[], None]] = [
        data_parallel, fully_sharded, two_dimensions, pipelines, compiled, without_optimizer,
    ]  # fmt: skip
    took = {}
    for case in cases:
        start = time.monotonic()
        case()
        took[case.__name__] = round(time.monotonic() - start, 2)
    begin("end")
    dump = getattr(torch._C._distributed_c10d, "_dump_fr_trace_json", None)
    recorded = json.loads(dump(True, False))["entries"] if dump is not None else None
    SAID.update(first=FIRST, took=took, recorded=recorded)
    with open(os.environ["OUT"], "w") as file:
        json.dump(SAID, file)
    dist.destroy_process_group()


main()
