"""One rank of the device timers' tests on a real GPU; what it measured itself goes to OUT."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch
import torch.distributed as dist

MS = 1_000_000
SLEEP_MS = (1, 5, 20)
RECORDS = 20


def cycles_a_ms() -> int:
    """How long ``torch.cuda._sleep`` takes here."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    start.record()
    torch.cuda._sleep(20_000_000)
    end.record()
    torch.cuda.synchronize()
    return int(20_000_000 / start.elapsed_time(end))


def device_times() -> Any:
    from paceline.hooks import agent

    assert agent._agent is not None
    assert agent._agent.recorder is not None
    return agent._agent.recorder.device


def exact() -> dict[str, Any]:
    """Synchronous and asynchronous calls, each between two events of the job itself."""
    tensor = torch.ones(1 << 20, device="cuda")
    a_ms = cycles_a_ms()
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    time.sleep(0.3)
    measured = []
    for number in range(RECORDS):
        before_ns = time.monotonic_ns()
        torch.cuda._sleep(SLEEP_MS[number % 3] * a_ms)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        dist.all_reduce(tensor)
        end.record()
        torch.cuda.synchronize()
        after_ns = time.monotonic_ns()
        measured.append([before_ns, after_ns, start.elapsed_time(end) * MS])
    dist.all_reduce(tensor, async_op=True).wait()
    torch.cuda.synchronize()
    time.sleep(0.5)
    return {"measured": measured, "error_ns": device_times()._marks.error_ns(0)}


def delayed() -> dict[str, Any]:
    """Two ranks; the second comes 150 ms late to every fourth collective."""
    tensor = torch.ones(1 << 16, device="cuda")
    for number in range(12):
        if dist.get_rank() == 1 and number % 4 == 3:
            time.sleep(0.15)
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
    time.sleep(0.5)
    return {}


def graph() -> dict[str, Any]:
    """Captures in CUDA's default mode while the poller has much to ask for."""
    tensor = torch.ones(1 << 16, device="cuda")
    a_ms = cycles_a_ms()
    side = torch.cuda.Stream()
    captured = 0
    for _ in range(5):
        with torch.cuda.stream(side):
            torch.cuda._sleep(300 * a_ms)
            for _ in range(50):
                dist.all_reduce(tensor)  # pending for 300 ms, so the poller asks again and again
        held = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            held.capture_begin()
            for _ in range(10):
                tensor.add_(0)
                time.sleep(0.05)
            dist.all_reduce(tensor)
            held.capture_end()
        captured += 1
        for _ in range(3):
            held.replay()
        torch.cuda.synchronize()
    time.sleep(0.5)
    return {"captured": captured}


def training() -> dict[str, Any]:
    """DDP whose host is late in odd steps."""
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(4096, 4096, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    batch = torch.ones(4096, 4096, device="cuda")
    for step in range(20):
        if step % 2:
            torch.cuda.synchronize()
            time.sleep(0.02)
        for _ in range(1 if step % 2 else 20):
            loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    time.sleep(0.5)
    return {}


def cost() -> dict[str, Any]:
    """Host time of a synchronous call, with and without timers, by turns."""
    device, tensor = device_times(), torch.ones(16, device="cuda")
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    took_us: dict[str, list[float]] = {"on": [], "off": []}
    for turn in range(20):
        name = "on" if turn % 2 else "off"
        device._allowed = name == "on"
        device.decide()
        start_ns = time.perf_counter_ns()
        for _ in range(200):
            dist.all_reduce(tensor)
        took_us[name].append((time.perf_counter_ns() - start_ns) / 200e3)
        torch.cuda.synchronize()
        time.sleep(0.3)
    return {name: sorted(values)[len(values) // 2] for name, values in took_us.items()}


def negative() -> dict[str, Any]:
    """The driver's time between two events in the wrong order."""
    device = device_times()
    dist.all_reduce(torch.ones(16, device="cuda"))
    first, second = device._api.new_event(), device._api.new_event()
    device._api.record(first, 0)
    torch.cuda._sleep(20_000_000)
    device._api.record(second, 0)
    torch.cuda.synchronize()
    time.sleep(0.7)  # the poller has loaded the driver by now
    return {
        "forward_ms": device._api.elapsed_ms(first, second),
        "backward_ms": device._api.elapsed_ms(second, first),
        "torch_ms": first.elapsed_time(second),
    }


def main() -> None:
    if os.environ.get("HOSTID_BY_RANK"):  # NCCL must take ranks on one GPU for several hosts
        os.environ["NCCL_HOSTID"] = f"host-{os.environ['RANK']}"
    torch.cuda.set_device(0)
    dist.init_process_group("nccl")
    said = globals()[os.environ["PART"]]()
    said["torch"], said["gpu"] = torch.__version__, torch.cuda.get_device_name(0)
    with open(os.environ["OUT"], "w") as file:
        json.dump(said, file)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
