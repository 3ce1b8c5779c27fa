"""Worlds of one rank, in which something goes wrong: a fork each, torch is imported once."""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import threading
import warnings

import torch
import torch._dynamo  # an optimizer imports it; here, once for all cases
import torch.distributed as dist

import paceline

warnings.simplefilter("ignore")


def train(steps: int, *, alone: bool = False) -> float:
    t = torch.ones(4)
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(steps):
        if not alone:
            dist.all_reduce(t)
        (weight * t).sum().backward()
        optimizer.step()
    return float(weight.detach().sum())


def main(case: str) -> None:
    handle = paceline.init()
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    said: dict[str, object] = {"active": handle.active, "token": os.environ.get("PACELINE_TOKEN")}
    recorder = handle._agent.recorder if handle._agent is not None else None
    if case == "failing_writer":
        assert recorder is not None

        def fail(*args: object, **kwargs: object) -> None:
            raise OSError("the ring is gone")

        recorder.writer.record = fail  # type: ignore[method-assign]
        recorder.clock.sink.record = fail  # type: ignore[method-assign,union-attr]
    if case == "fork":
        child = os.fork()
        if child == 0:
            train(3, alone=True)  # Gloo's threads do not survive a fork, nor does its end
            atexit._run_exitfuncs()
            os._exit(0)
        os.waitpid(child, 0)
    if case == "threads":
        threads = [threading.Thread(target=train, args=(50,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if case == "close":
        train(1)
        handle.close()
        handle.close()
        train(1)
        with handle.phase("input"):
            handle.step()
    if case == "compiled":
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
        compiled = torch.compile(model, backend="aot_eager")
        for _ in range(2):
            compiled(torch.ones(1, 4)).sum().backward()
        breaks = torch._dynamo.utils.counters["graph_break"]
        said["breaks"] = [reason for reason in breaks if "wrapped with" in reason]
        said["traced"] = [
            reason
            for reason in breaks
            if any(word in reason for word in ("monotonic_ns", "pack_into", "unbox", "paceline"))
        ]
    if case == "raises":
        try:
            dist.all_to_all_single(torch.empty(3), torch.empty(5), [1], [2])
        except (RuntimeError, ValueError):
            said["raised"] = True
    said["weight"] = train(3)
    with open(os.environ["OUT"], "w") as file:
        json.dump(said, file)


def fork_each(cases: dict[str, dict[str, str]]) -> None:
    children = {}
    gc.freeze()  # what was imported: to collect it at the end of each child takes half a second
    for name, env in cases.items():
        child = os.fork()
        if child:
            children[name] = child
            continue
        os.environ.update(env)
        log = os.open(env["LOG"], os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        main(name)
        sys.exit(0)
    failed = [name for name, child in children.items() if os.waitpid(child, 0)[1]]
    sys.exit(f"failed: {failed}" if failed else 0)


fork_each(json.loads(os.environ["CASES"]))
