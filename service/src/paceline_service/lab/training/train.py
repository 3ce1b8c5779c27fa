"""Train a sentence classifier in data parallel, one process per rank (run it with torchrun).

It imports no monitoring tool. It writes down what it trained, and which parameters were in which
bucket, so that what Paceline measured from outside can be told by bucket.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from paceline_service.demo.train import PLACES, Fault, Optimizer
from paceline_service.lab.plans import STRATEGIES
from paceline_service.lab.sentences import CLASSES, sentences, tokens, vocabulary
from paceline_service.lab.sizes import SIZES, Size
from paceline_service.lab.training.model import Classifier
from paceline_service.lab.training.parallel import Parallel, held_bytes, parallel
from paceline_service.lab.training.probe import probe

LENGTH = 12
"""Tokens of a sentence; none of them is longer."""
TRAINED_SENTENCES, UNSEEN_SENTENCES = 4000, 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentences:
    """Sentences as tensors: codes (count, length) and labels (count,)."""

    codes: Tensor
    labels: Tensor

    def batch(self, step: int, batch: int, fault: Fault) -> tuple[Tensor, Tensor]:
        """Return this rank's sentences of ``step``; no two ranks get the same."""
        fault.at("input")
        rank, ranks = dist.get_rank(), dist.get_world_size()
        first = (step * ranks + rank) * batch
        index = torch.arange(first, first + batch, device=self.codes.device) % len(self.codes)
        return self.codes[index], self.labels[index]


def made(count: int, seed: int, device: torch.device) -> Sentences:
    """Return ``count`` generated sentences."""
    words = vocabulary()
    pairs = sentences(count, seed)
    return Sentences(
        codes=torch.tensor([tokens(text, words, LENGTH) for text, _ in pairs], device=device),
        labels=torch.tensor([label for _, label in pairs], device=device),
    )


class Trainer:
    """Trains one stretch after another and counts the steps over all of them."""

    def __init__(self, options: argparse.Namespace, device: torch.device) -> None:
        self.options = options
        self.size: Size = SIZES[options.size]
        self.device = device
        self.trained = made(TRAINED_SENTENCES, options.seed, device)
        self.unseen = made(UNSEEN_SENTENCES, options.seed + 1, device)
        self.steps_done = 0

    def run(self, name: str, strategy: str, bucket_bytes: int, say: Any) -> dict[str, Any]:
        """Train a fresh model and return its stretch of the manifest."""
        fault = self._fault()
        torch.manual_seed(self.options.seed)  # every stretch begins with the same model
        model = parallel(Classifier(self.size, fault), strategy, bucket_bytes, self.device)
        optimizer = Optimizer(model.model.parameters(), self.size.rate, fault)
        first_step, plans = self.steps_done, []
        losses: list[Tensor] = []
        step_s: list[float] = []
        for step in range(self.options.steps):
            begun_s = time.perf_counter()
            fault.step = step
            losses.append(self._step(step, model, optimizer, fault))
            if step < 2:
                plans.append({**model.plan(), "first_step": self.steps_done})
            self.steps_done += 1
            step_s.append(time.perf_counter() - begun_s)
            say(
                f"step {self.steps_done}/{self.options.total}  loss {losses[-1].item():.3f}  "
                f"{step_s[-1] * 1e3:.0f} ms  {name}"
            )
        held = held_bytes(model.model, optimizer)
        return {
            "name": name,
            "strategy": strategy,
            "bucket_bytes": bucket_bytes,
            "first_step": first_step,
            "last_step": self.steps_done - 1,
            "plans": plans,
            "losses": _mean_over_ranks(losses),
            "step_s": step_s,
            "accuracy": self._accuracy(model.model),
            "held_bytes": held,
            "peak_bytes": _peak_bytes(self.device),
        }

    def _step(
        self, step: int, model: Parallel, optimizer: torch.optim.Optimizer, fault: Fault
    ) -> Tensor:
        codes, labels = self.trained.batch(step, self.size.batch, fault)
        loss = nn.functional.cross_entropy(model.model(codes), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        fault.at("host")
        return loss.detach()

    def _accuracy(self, model: nn.Module) -> float:
        """Return the share of unseen sentences that the model tells right."""
        with torch.no_grad():
            told = model(self.unseen.codes).argmax(dim=1)
        return float((told == self.unseen.labels).float().mean())

    def _fault(self) -> Fault:
        options = self.options
        active = dist.get_rank() == options.slow_rank
        return Fault(options.fault, active, options.fault_ms, options.steps // 3)


def _mean_over_ranks(losses: list[Tensor]) -> list[float]:
    mean = torch.stack(losses) / dist.get_world_size()
    dist.all_reduce(mean)
    return [float(loss) for loss in mean]


def _peak_bytes(device: torch.device) -> int:
    if device.type != "cuda":
        return 0
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return int(peak)


def join() -> torch.device:
    """Join the process group, over NCCL where every rank has a GPU of its own, else over Gloo."""
    local_rank, local_ranks = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    if torch.cuda.is_available() and torch.cuda.device_count() >= local_ranks:
        torch.cuda.set_device(local_rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))
        return torch.device("cuda", local_rank)
    dist.init_process_group("gloo")
    return torch.device("cpu")


def main() -> None:
    """Train what was asked for and write the manifest."""
    options = _options()
    device = join()
    trainer = Trainer(options, device)
    tell = dist.get_rank() == 0

    def say(line: str) -> None:
        if tell:
            print(line, flush=True)

    stretches: list[dict[str, Any]] = []
    manifest = {
        "backend": dist.get_backend(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "ranks": dist.get_world_size(),
        "parameters": trainer.size.parameters(len(CLASSES)),
        "probe_group": probe(device, options.probe_bytes),
        "stretches": stretches,
    }
    for text in options.stretch:
        name, strategy, bucket_bytes = text.split(":")
        stretches.append(trainer.run(name, strategy, int(bucket_bytes), say))
    if tell:
        options.manifest.write_text(json.dumps(manifest), encoding="utf-8")
    dist.destroy_process_group()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a sentence classifier in data parallel.")
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=50, help="of each stretch")
    parser.add_argument(
        "--stretch", action="append", required=True, metavar="NAME:STRATEGY:BYTES",
        help=f"a strategy of {', '.join(STRATEGIES)} and the size of DDP's buckets",
    )  # fmt: skip
    parser.add_argument("--probe-bytes", type=int, default=4 << 20, help="largest transfer alone")
    parser.add_argument("--manifest", type=Path, required=True)
    parser.add_argument("--fault", choices=PLACES, default="none")
    parser.add_argument("--slow-rank", type=int, default=1)
    parser.add_argument("--fault-ms", type=float, default=25.0)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    options.total = options.steps * len(options.stretch)
    return options


if __name__ == "__main__":
    main()
