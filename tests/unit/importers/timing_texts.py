"""Training logs as Megatron-LM, NeMo and DeepSpeed print them, of jobs with a known fault."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from paceline_service.importers.sources import analyze_paths

Report = dict[str, Any]
Answer = Callable[..., Report]
ARGUMENTS = "------------------------ arguments ------------------------"


@dataclass(kw_only=True)
class Job:
    """A job of ``ranks`` that does the same every iteration, but for its faults.

    ``slow`` is by rank how many times as long its own work takes, ``from_iteration`` on;
    ``all_slow`` the same for everybody; ``heavy`` by pipeline stage.
    """

    ranks: int = 8
    iterations: int = 600
    every: int = 10
    stages: int = 1
    tensor: int = 1
    slow: dict[int, float] = field(default_factory=dict)
    all_slow: float = 1.0
    network: float = 1.0
    from_iteration: int = 0
    heavy: dict[int, float] = field(default_factory=dict)
    jitter: float = 0.01
    seed: int = 7
    arguments: bool = True

    def numbers(self) -> Iterator[tuple[int, dict[str, np.ndarray], float]]:
        """Yield each report: its iteration, the timers of all ranks, the iteration's time (ms)."""
        rng = np.random.default_rng(self.seed)
        stage = np.arange(self.ranks) // (self.ranks // self.stages)
        for number in range(self.every, self.iterations + 1, self.every):
            since = number > self.from_iteration
            weight = np.ones(self.ranks)
            for rank, factor in self.slow.items():
                weight[rank] = factor if since else 1.0
            for one, factor in self.heavy.items():
                weight[stage == one] *= factor
            weight *= self.all_slow if since else 1.0
            if number == self.every:
                weight = weight * 3  # the first iterations compile and allocate
            noise = rng.normal(1, self.jitter / np.sqrt(self.every), (4, self.ranks))
            forward, backward = 200 * weight * noise[0], 400 * weight * noise[1]
            if self.tensor > 1:
                # Who shares layers waits for the slowest of the group within its passes.
                group = np.arange(self.ranks) // self.tensor
                forward = np.array([forward[group == g].max() for g in group])
                backward = np.array([backward[group == g].max() for g in group])
            data, optimizer = 4 * noise[2], 30 * noise[3]
            own = forward + backward + optimizer
            sync = 40.0 * (self.network if since else 1.0)
            bubble = 60.0 if self.stages > 1 else 0.0
            step = float(own.max() + sync + bubble + 20)
            timers = {
                "forward-backward": np.full(self.ranks, step - 35),
                "forward-compute": forward,
                "backward-compute": backward,
                "batch-generator": data,
                "all-grads-sync": np.full(self.ranks, sync),
                "optimizer-inner-step": optimizer,
                "optimizer": optimizer + 2,
            }
            if self.stages > 1:
                receives = np.where(stage == 0, 0.0, 30.0 + 10 * noise[2])
                timers["forward-recv"] = receives
                timers["backward-recv"] = np.where(stage == self.stages - 1, 0.0, 30.0)
            yield number, timers, step


def report_of(directory: Path, *logs: str | Sequence[str]) -> Report:
    """Return the report on logs, each a text or lines, written into ``directory``."""
    for number, log in enumerate(logs):
        text = log if isinstance(log, str) else "\n".join(log) + "\n"
        (directory / f"log-{number}.out").write_text(text, newline="")
    return analyze_paths([directory]).report


def notes_of(report: Report) -> str:
    """Return the notes of a report, one a line."""
    return "\n".join(report["data"]["notes"])


def named(report: Report) -> tuple[str, list[int], str]:
    """Return kind, ranks and cause of the one finding."""
    (finding,) = report["findings"]
    return finding["kind"], finding["ranks"], finding["cause"]


def arguments(job: Job) -> list[str]:
    """Return what Megatron prints of the arguments that matter here."""
    values = {
        "log_interval": job.every, "pipeline_model_parallel_size": job.stages,
        "tensor_model_parallel_size": job.tensor, "train_iters": job.iterations,
        "world_size": job.ranks,
    }  # fmt: skip
    return [ARGUMENTS, *(f"  {name} {'.' * (48 - len(name))} {v}" for name, v in values.items())]


def megatron(job: Job, form: str, *, stamp: bool = False, skipped: Sequence[int] = ()) -> list[str]:
    """Return a Megatron-LM log; ``form`` is ``one``, ``max``, ``minmax``, ``all`` or ``none``."""
    lines = arguments(job) if job.arguments else []
    lines.append("training ...")
    for number, timers, step in job.numbers():
        when = f" [2025-01-05 10:{number // 60 % 60:02d}:{number % 60:02d}.123456]" if stamp else ""
        lines.append(
            f"{when} iteration {number:8d}/{job.iterations:8d} | consumed samples: "
            f"{number * 64:12d} | elapsed time per iteration (ms): {step:.1f} | throughput per GPU "
            f"(TFLOP/s/GPU): {3e5 / step:.1f} | learning rate: 1.500000E-04 | global batch size: "
            f"   64 | lm loss: 7.{number:06d}E+00 | loss scale: 1.0 | grad norm: 1.234 | number of "
            f"skipped iterations: {int(number in skipped):3d} | number of nan iterations:   0 |"
        )
        lines += timer_lines(timers, form)
    return lines


def timer_lines(timers: dict[str, np.ndarray], form: str) -> list[str]:
    """Return the timers of a report as the log options print them."""
    if form == "none":
        return []
    if form == "one":
        return ["time (ms) | " + " | ".join(f"{k}: {v[-1]:.2f}" for k, v in timers.items())]
    if form == "all":
        lines = ["times across ranks (ms):"]
        for name, values in timers.items():
            lines.append(f"  {name}:")
            lines += [f"     rank {r:2d}: {v:.2f}" for r, v in enumerate(values) if v > 0]
        return lines
    lines = [
        "max time across ranks (ms):" if form == "max" else "(min, max) time across ranks (ms):"
    ]
    for name, values in timers.items():
        known = values[values > 0]
        told = f"{known.max():.2f}" if form == "max" else f"({known.min():.2f}, {known.max():.2f})"
        lines.append(f"    {(name + ' ').ljust(48, '.')}: {told}")
    return lines


def detector(job: Job, *, count: int = 0, clock: int | None = None) -> list[str]:
    """Return iterations with the lines of Megatron's straggler detector between them.

    Args:
        job: the job.
        count: how many of the slowest and the fastest it lists.
        clock: the rank with the lowest clock.
    """
    lines = arguments(job) if job.arguments else []
    for number, timers, step in job.numbers():
        lines.append(
            f" iteration {number:8d}/{job.iterations:8d} | consumed samples: {number * 64:12d} | "
            f"elapsed time per iteration (ms): {step:.1f} | global batch size:    64 |"
        )
        took = timers["forward-compute"]
        order = np.argsort(took)
        fast, slow = int(order[0]), int(order[-1])
        other = (number // job.every) % job.ranks
        low = other if clock is None else clock
        rate = 1e5 / took
        lines.append(
            f"INFO:megatron.core.utils:[2025-01-05 10:00:00] | MnRtt/Rnk: {took[fast]:.2f}ms/{fast}"
            f" | MxRtt/Rnk: {took[slow]:.2f}ms/{slow} | MnPwr/Rnk: 601796.00W/{other} | MxPwr/Rnk: "
            f"683801.00W/{other} | MnTmp/Rnk: 52.00C/0 | MxTmp/Rnk: 65.00C/{other} | MnUtl/Rnk: "
            f"97.00%/{other} | MxUtl/Rnk: 100.00%/6 | MnClk/Rnk: {1950 if clock is None else 1200}"
            f".00MHz/{low} | MxClk/Rnk: 1980.00MHz/0 | MnDRtt/Rnk: 1.27ms/{other} | MxDRtt/Rnk: "
            f"1.36ms/{other} | MnEtpt/Rnk: {rate[slow]:.2f}TF/{slow} | MxEtpt/Rnk: "
            f"{rate[fast]:.2f}TF/{fast}"
        )
        if count:
            bottom = "".join(f" {rate[r]:.2f}/{r}," for r in order[::-1][:count])
            top = "".join(f" {rate[r]:.2f}/{r}," for r in order[:count][::-1])
            lines.append(f"^^^^ Bottom {count} Ranks with lowest  Etpt(TF):{bottom}")
            lines.append(f"^^^^ Top    {count} Ranks with highest Etpt(TF):{top}")
    return lines


def deepspeed(
    job: Job,
    ranks: Sequence[int],
    *,
    old: bool = False,
    slow_optimizer: dict[int, float] | None = None,
) -> list[str]:
    """Return DeepSpeed's wall_clock_breakdown of some ranks, their lines mixed.

    ``slow_optimizer`` has the ranks whose optimizer takes that many times as long; with it the
    parts of the optimizer are printed, as ZeRO does.
    """
    rng = np.random.default_rng(job.seed)
    lines = []
    for number in range(1, job.iterations + 1):
        weight = np.array([job.slow.get(r, 1.0) if number > job.from_iteration else 1.0
                           for r in range(job.ranks)])  # fmt: skip
        noise = rng.normal(1, job.jitter, (2, job.ranks))
        forward, backward = 50 * weight * noise[0], 100 * weight * noise[1]
        late = (forward + backward).max()
        for rank in ranks:
            sync = late - forward[rank] - backward[rank] + 8
            total = backward[rank] + sync
            head = f"rank={rank} time (ms)" if old else f"[Rank {rank}] time (ms)"
            names = (
                ("forward", "backward", "backward_inner", "backward_allreduce", "step")
                if old
                else ("fwd", "bwd", "bwd_inner", "bwd_allreduce", "step")
            )
            step = 12.0
            if slow_optimizer is not None:
                mine, most = (50 * slow_optimizer.get(r, 1.0) for r in (rank, max(slow_optimizer)))
                step = most + 8
                lines.append(
                    f"{head} | optimizer_allgather: {step - mine:.2f} | optimizer_gradients: 0.02 "
                    f"| optimizer_step: {mine:.2f}"
                )
            values = (forward[rank], total, backward[rank], sync, step)
            pairs = " | ".join(f"{n}: {v:.2f}" for n, v in zip(names, values, strict=True))
            micro = " | ".join(
                f"{n}_microstep: {v:.2f}" for n, v in zip(names, values, strict=True)
            )
            lines += [f"{head} | {micro}", f"{head} | {pairs}"]
    return lines


def nemo(job: Job) -> str:
    """Return NeMo's progress bar, each iteration drawn over the last, each twice."""
    bars = []
    for number, _, step in job.numbers():
        bar = (
            f"\x1b[32mEpoch 0: :   1%|  | {number}/600 [00:10<10:00, reduced_train_loss=9.1, "
            f"global_step={number - 1}.0, consumed_samples=256.0, train_step_timing in s="
            f"{step / 1e3:.3f}]"
        )
        bars += [bar, bar]
    return "\r".join(bars)


def stamped(iterations: int, change: int) -> list[str]:
    """Return DeepSpeed's progress, every ten steps: 500 ms a step, then 600."""
    now = datetime(2023, 11, 29, 8, 0, 0)
    lines = []
    for step in range(10, iterations + 1, 10):
        now += timedelta(milliseconds=10 * (500 if step <= change else 600) + step % 7)
        when = now.strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
        lines.append(
            f"node-1: [{when}] [INFO] [logging.py:96:log_dist] [Rank 0] step={step}, "
            f"skipped={step // 300}, lr=[0.0, 0.0], mom=[(0.9, 0.95)]"
        )
    return lines


def iterations_of(form: str, iterations: int, change: int) -> list[str]:
    """Return a fifth more from ``change`` on, as frameworks print it that print one number."""
    lines = []
    for number in range(1, iterations + 1):
        ms = 360.0 if number > change else 300.0
        lines += {
            "megatron 1.0": [
                f" iteration {number:8d}/ 900 | elapsed time per iteration (ms): {ms} | loss 7.0 |",
                f"time (ms) | forward: 100.00 | backward: {ms - 120:.2f} | backward-backward: "
                f"150.00 | backward-allreduce: {ms - 270:.2f} | optimizer: 15.00 | batch "
                "generator: 1.00",
            ],
            "nemo 2": [
                f"Training epoch 0, iteration {number}/900 | lr: 1e-06 | global_batch_size: 8 | "
                f"global_step: {number} | reduced_train_loss: 1.3 | train_step_timing in s: "
                f"{ms / 1e3}"
            ],
            "bridge": [f"Step Time : {ms / 1e3:.2f}s GPU utilization: 345.2MODEL_TFLOP/s/GPU"],
            "deepspeed pipeline": [
                f"steps: {number} loss: 1.2345 iter time (s): {ms / 1e3:.3f} samples/sec: 12.345"
            ],
            "deepspeed throughput": [
                f"[2023-11-29 08:56:16,103] [INFO] [timer.py:260:stop] epoch=0/micro_step={number}"
                f"/global_step={number}, RunningAvgSamplesPerSec=303.11, CurrSamplesPerSec="
                f"{1e5 / ms}, MemAllocated=17.54GB, MaxMemAllocated=66.97GB"
            ],
        }[form]
    return lines


COMMUNICATION_SUMMARY = """\
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)
all_reduce
                    678.86 MB           100                 6000.00             60.00               180.12              168.86
                    1.0 KB              300                 30.00               0.10                0.16                0.15
reduce_scatter_tensor
                    339.43 MB           100                 2500.00             25.00               200.00              187.50
_______________________________
Breakdown with straggler effect
-------------------------------
Comm. Op            Message Size        Count               Total comm lat(ms)  Total straggler(ms) Avg comm lat(ms)    Avg straggler(ms)
all_reduce
                    678.86 MB           100                 2000.00             4000.00             20.00               40.00
                    1.0 KB              300                 20.00               10.00               0.07                0.03
reduce_scatter_tensor
                    339.43 MB           100                 2400.00             100.00              24.00               1.00
"""  # noqa: E501  the table as it is printed
