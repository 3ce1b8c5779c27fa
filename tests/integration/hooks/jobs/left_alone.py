"""What jobs do with torch beside training, in a world of one rank; the case is the argument."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import paceline

handle = paceline.init()  # before torch is imported: the injection file waits for it already

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.distributed.checkpoint as dcp  # noqa: E402


def begin() -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert handle.active


def init_before_torch() -> None:
    begin()


def save_in_another_process() -> None:
    originals = (torch.save, dcp.save, dcp.async_save)
    begin()
    assert torch.save is not originals[0]
    assert torch.save is torch.serialization.save
    for function in (torch.save, torch.load, dcp.save, dcp.async_save):
        assert pickle.loads(pickle.dumps(function)) is function
    path = Path(os.environ["OUT"]).with_suffix(".pt")
    for start in ("fork", "spawn"):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(start)) as pool:
            pool.submit(torch.save, {"a": 1}, path).result()
    assert torch.load(path) == {"a": 1}
    handle.close()
    assert torch.save is torch.serialization.save
    assert (torch.save, dcp.save, dcp.async_save) == originals


def fork_while_collectives_complete() -> None:
    begin()
    tensor = torch.ones(1000)
    done = threading.Event()

    def issue() -> None:
        while not done.is_set():
            for work in [dist.all_reduce(tensor, async_op=True) for _ in range(8)]:
                work.wait()

    threads = [threading.Thread(target=issue) for _ in range(2)]
    for thread in threads:
        thread.start()
    native = handle._agent._collectives._native
    for _ in range(300):
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            native.forget_group(0)  # what the death of a group does
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, "a child of a rank hung"
    done.set()
    for thread in threads:
        thread.join()
    assert handle._agent.recorder.errors == 0
    handle._agent.recorder.writer.path.unlink()  # much of it was overwritten


def close_and_begin_again_beside_threads() -> None:
    begin()
    done = threading.Event()
    finished = []

    def issue() -> None:
        tensor = torch.ones(10)
        while not done.is_set():
            dist.all_reduce(tensor)
            dist.barrier()
            dist.all_reduce(tensor, async_op=True).wait()
        finished.append(True)

    threads = [threading.Thread(target=issue) for _ in range(4)]
    for thread in threads:
        thread.start()
    last = handle
    for _ in range(100):
        last.close()
        last = paceline.init()
    done.set()
    for thread in threads:
        thread.join()
    assert len(finished) == len(threads), "an exception of ours came to the job"
    last.close()
    last = paceline.init()
    dist.all_reduce(torch.ones(1))
    for path in last._agent.recorder.writer.path.parent.glob("*.ring"):
        if path != last._agent.recorder.writer.path:
            path.unlink()


def begin_without_room_for_a_thread() -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "paceline-poller":
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse  # type: ignore[method-assign]
    saves = torch.save
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    assert not handle.active
    assert torch.save is saves
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
