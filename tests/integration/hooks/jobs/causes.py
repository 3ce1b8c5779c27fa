"""Steps of one rank with checkpoints, copies, pauses and a trainer that calls the engine itself."""

from __future__ import annotations

import gc
import io
import json
import os
import threading
import time
import warnings
from pathlib import Path

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.autograd import Variable
from torch.utils.data import DataLoader

import paceline
from paceline.hooks import agent
from paceline.hooks.copies import CopyHooks
from paceline.hooks.patches import Patches

warnings.simplefilter("ignore")
SAVE_S = 0.03
SAID: dict[str, object] = {}
FIRST: dict[str, int] = {}
TO = torch.Tensor.to


class SlowFile(io.BytesIO):
    """A file on a slow disk."""

    def write(self, data: object) -> int:  # type: ignore[override]
        time.sleep(SAVE_S)
        return super().write(data)  # type: ignore[arg-type]


class Seen(torch.Tensor):
    """Remembers with which function it was called."""

    functions: list[object] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        Seen.functions.append(function)
        return super().__torch_function__(function, types, args, kwargs or {})


def recorder():  # type: ignore[no-untyped-def]
    assert agent._agent is not None
    return agent._agent.recorder


def begin(name: str) -> None:
    dist.barrier()
    FIRST[name] = recorder().clock.step


def checkpoints(model: torch.nn.Module, step) -> None:  # type: ignore[no-untyped-def]
    begin("torch_save")
    step()
    file = SlowFile()
    torch.save(model.state_dict(), file)
    step()
    begin("saved_elsewhere")
    saving = threading.Thread(target=torch.save, args=(model.state_dict(), SlowFile()))
    saving.start()
    saving.join()
    step()
    begin("distributed_save")
    directory = Path(os.environ["DIRECTORY"])
    dcp.save({"model": model.state_dict()}, checkpoint_id=directory / "whole")
    step()
    begin("asynchronous_save")
    saved = dcp.async_save({"model": model.state_dict()}, checkpoint_id=directory / "later")
    blocked_until = time.monotonic_ns()
    step()
    saved.result()
    SAID["blocked_until"] = blocked_until


def engine(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    begin("engine")
    for _ in range(2):
        loss = model(torch.ones(1, 4)).sum()
        time.sleep(0.005)
        Variable._execution_engine.run_backward(
            (loss,), (torch.ones_like(loss),), False, False, (),
            allow_unreachable=True, accumulate_grad=True,
        )  # fmt: skip
        optimizer.step()
    SAID["engine_is_torchs"] = isinstance(Variable._execution_engine, torch._C._ImperativeEngine)


def copies(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    begin("copies")
    patches = Patches()
    CopyHooks(torch, recorder(), patches, least_ns=0).install()
    for x in DataLoader(torch.ones(2, 4)):
        time.sleep(0.005)
        x.to("meta")
        x.to(torch.float64)
        time.sleep(0.005)
        model(x).sum().backward()
        optimizer.step()
    begin("no_copies")
    for x in DataLoader(torch.ones(1, 4)):
        torch.ones(3).as_subclass(Seen).to("meta")
        SAID["subclass_got"] = Seen.functions == [TO] * len(Seen.functions) and len(Seen.functions)
        SAID["class_has"] = torch.Tensor.to is TO
        moved = threading.Thread(target=lambda: torch.ones(3).to("meta"))
        moved.start()
        moved.join()
        whole = torch.compile(casts, backend="eager", fullgraph=True)
        SAID["compiled"] = [float(whole(x).sum()), float(whole(x).sum())]
        SAID["graphs"] = torch._dynamo.utils.counters["stats"]["unique_graphs"]
        model(x).sum().backward()
        torch.ones(3).to("meta")
        optimizer.step()
    patches.undo()
    SAID["undone"] = "to" not in vars(torch.Tensor)


def casts(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float64) + torch.arange(4).to(x.device)


def collected(model: torch.nn.Module, step) -> None:  # type: ignore[no-untyped-def]
    begin("collected")
    kept = [[index] for index in range(400_000)]
    start_ns = time.monotonic_ns()
    gc.collect()
    SAID["collected"] = [start_ns, time.monotonic_ns(), len(kept)]
    step()


def main() -> None:
    paceline.init()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step() -> None:
        model(torch.ones(1, 4)).sum().backward()
        optimizer.step()

    step()
    checkpoints(model, step)
    engine(model, optimizer)
    copies(model, optimizer)
    collected(model, step)
    begin("moved")
    other = threading.Thread(target=lambda: [step() for _ in range(4)])
    other.start()
    other.join()
    assert agent._agent is not None
    recorder().clock.commit()
    FIRST["end"] = recorder().clock.step
    SAID["first"] = FIRST
    with open(os.environ["OUT"], "w") as file:
        json.dump(SAID, file)


main()
