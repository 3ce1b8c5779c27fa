"""Train a small transformer on generated text, one process per rank (run it with torchrun).

This is an ordinary training script: DDP, a DataLoader, AdamW. It imports and
knows no monitoring tool. It can be made to misbehave, through its environment:

    FAULT            none, input, forward, backward (default), optimizer or host:
                     the place where one rank pauses
    DEMO_SLOW_RANK   which rank (default 2)
    DEMO_FAULT_MS    how long it pauses in every step (default 25)
    DEMO_FAULT_STEP  the first step with a pause (default: a third of the run)
"""

from __future__ import annotations

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PLACES = ("none", "input", "forward", "backward", "optimizer", "host")
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz."

ANIMALS = ("fox", "hen", "otter", "raven", "horse", "beetle")
QUALITIES = ("old", "quick", "shy", "brown", "patient", "small")
ACTIONS = ("follow", "watch", "greet", "outrun", "miss")
PLACENAMES = ("by the river", "in the barn", "on the hill", "after the rain")


class Fault:
    """A pause at one place of the step, on one rank, from one step on."""

    def __init__(self, place: str, active: bool, pause_ms: float, first_step: int) -> None:
        self.place = place if active else "none"
        self.pause_ms = pause_ms
        self.first_step = first_step
        self.step = 0

    def at(self, place: str) -> None:
        """Pause when this is the place and the healthy stretch is over."""
        if place == self.place and self.step >= self.first_step:
            time.sleep(self.pause_ms * random.uniform(0.9, 1.1) / 1e3)


def fault_from_environment(
    environment: Mapping[str, str], rank: int, world_size: int, steps: int
) -> Fault:
    """Read the fault that was asked for; a wrong value ends the script with a message."""
    place = environment.get("FAULT") or "backward"
    if place not in PLACES:
        raise SystemExit(f"FAULT={place} is unknown; choose one of: {', '.join(PLACES)}")
    try:
        slow_rank = int(environment.get("DEMO_SLOW_RANK") or 2)
        pause_ms = float(environment.get("DEMO_FAULT_MS") or 25)
        first_step = int(environment.get("DEMO_FAULT_STEP") or steps // 3)
    except ValueError as error:
        raise SystemExit(f"the slow rank, its pause and its first step are numbers: {error}") from (
            error
        )
    if not 0 <= slow_rank < world_size:
        raise SystemExit(f"rank {slow_rank} cannot be slow: ranks are 0 to {world_size - 1}")
    return Fault(place, rank == slow_rank, pause_ms, first_step)


def write_text(sentences: int, seed: int) -> str:
    """Return text from a small grammar: singular and plural agree, so there is much to learn."""
    rng = random.Random(seed)
    lines = []
    for _ in range(sentences):
        one = rng.random() < 0.5
        who = f"{'a' if one else 'two'} {rng.choice(QUALITIES)} {rng.choice(ANIMALS)}"
        does = rng.choice(ACTIONS)
        whom = f"the {rng.choice(QUALITIES)} {rng.choice(ANIMALS)}"
        subject, verb = (who, f"{does}es" if does == "miss" else f"{does}s") if one else (
            f"{who}s", does,
        )  # fmt: skip
        lines.append(f"{subject} {verb} {whom} {rng.choice(PLACENAMES)}.")
    return "\n".join(lines)


class TextWindows(Dataset[tuple[Tensor, Tensor]]):
    """Windows of characters and the same windows one character later."""

    def __init__(self, text: str, window: int, fault: Fault) -> None:
        self.codes = torch.tensor([ALPHABET.index(letter) for letter in text])
        self.window = window
        self.fault = fault

    def __len__(self) -> int:
        return len(self.codes) - self.window - 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        piece = self.codes[index : index + self.window + 1]
        return piece[:-1], piece[1:]

    def collate(self, items: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
        """Stack a batch; a slow disk or decoder would be felt here."""
        self.fault.at("input")
        return torch.stack([item[0] for item in items]), torch.stack([item[1] for item in items])


class SlowBackward(torch.autograd.Function):
    """The identity, with a pause on the way back."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, fault: Fault) -> Tensor:
        """Return ``hidden``."""
        ctx.fault = fault
        return hidden.view_as(hidden)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        """Return the gradient, after the pause."""
        ctx.fault.at("backward")
        return gradients[0], None


class Block(nn.Module):
    """Attention that sees only the past, then a two-layer perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.before_perceptron = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """Return ``hidden`` (batch, window, width) with what this block adds."""
        batch, window, width = hidden.shape
        qkv = self.query_key_value(self.before_attention(hidden))
        query, key, value = qkv.view(batch, window, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        hidden = hidden + self.project(seen.transpose(1, 2).reshape(batch, window, width))
        added: Tensor = self.perceptron(self.before_perceptron(hidden))
        return hidden + added


class Transformer(nn.Module):
    """A language model over ``ALPHABET``."""

    def __init__(self, width: int, heads: int, layers: int, window: int, fault: Fault) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), width)
        self.positions = nn.Parameter(torch.zeros(window, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, len(ALPHABET))
        self.fault = fault

    def forward(self, codes: Tensor) -> Tensor:
        """Return the logits of the letter after each of ``codes`` (batch, window)."""
        hidden = self.letters(codes) + self.positions
        for index, block in enumerate(self.blocks):
            if index == len(self.blocks) // 2:
                self.fault.at("forward")
                hidden = SlowBackward.apply(hidden, self.fault)  # type: ignore[no-untyped-call]
            hidden = block(hidden)
        logits: Tensor = self.head(self.norm(hidden))
        return logits


class Optimizer(torch.optim.AdamW):
    """AdamW whose step can be slow."""

    def __init__(self, parameters: Iterator[nn.Parameter], rate: float, fault: Fault) -> None:
        super().__init__(parameters, lr=rate)
        self.fault = fault

    def step(self, closure: Any = None) -> Any:
        """Update the parameters."""
        self.fault.at("optimizer")
        return super().step(closure)


def endless(loader: DataLoader[Any], sampler: DistributedSampler[Any]) -> Iterator[Any]:
    """Yield batches for ever, shuffled anew in every epoch."""
    epoch = 0
    while True:
        sampler.set_epoch(epoch)
        yield from loader
        epoch += 1


def train(
    options: argparse.Namespace, fault: Fault, log: Callable[[str], None]
) -> tuple[float, float]:
    """Train and return the mean loss of the first and of the last ten steps of this rank."""
    torch.manual_seed(options.seed)
    windows = TextWindows(write_text(4000, options.seed), options.window, fault)
    sampler: DistributedSampler[Any] = DistributedSampler(windows, seed=options.seed)
    loader = DataLoader(
        windows, batch_size=options.batch, sampler=sampler, collate_fn=windows.collate
    )
    model = Transformer(options.width, 4, options.layers, options.window, fault)
    parallel = DistributedDataParallel(model, bucket_cap_mb=0.5)
    optimizer = Optimizer(parallel.parameters(), options.rate, fault)
    batches = endless(loader, sampler)
    losses: list[float] = []
    logged_at = time.perf_counter()
    for step in range(options.steps):
        fault.step = step
        codes, targets = next(batches)
        optimizer.zero_grad()
        logits = parallel(codes)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
        fault.at("host")
        if step % 10 == 9:
            now = time.perf_counter()
            step_ms = (now - logged_at) * 1e2
            logged_at = now
            log(f"step {step + 1}/{options.steps}  loss {losses[-1]:.3f}  {step_ms:.0f} ms/step")
    return sum(losses[:10]) / len(losses[:10]), sum(losses[-10:]) / len(losses[-10:])


def main() -> None:
    """Join the process group, train, leave."""
    parser = argparse.ArgumentParser(description="Train a small transformer on generated text.")
    parser.add_argument("--steps", type=int, default=280)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--window", type=int, default=48)
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    fault = fault_from_environment(os.environ, rank, world_size, options.steps)

    def log(line: str) -> None:
        if rank == 0:
            print(line, flush=True)

    first, last = train(options, fault, log)
    log(f"trained {options.steps} steps on {world_size} ranks: loss {first:.3f} -> {last:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
