"""What the lab is asked to do, checked before anything starts."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline_service.analysis.costs.units import group_of, parse_bytes, positive, whole
from paceline_service.lab.plans import STRATEGIES
from paceline_service.lab.sentences import CLASSES
from paceline_service.lab.sizes import SIZES, Size

WARM_UP_STEPS = 3
"""Of a stretch: memory is allocated and DDP makes its buckets anew in the second step."""
LEAST_STEPS = 5
"""Fewer leave nothing behind the first steps, in which memory is allocated."""
STEPS, SWEEP_STEPS, FAULT_STEPS = 50, 20, 120
MOST_RANKS = 64
LEAST_BUCKET_BYTES = 1024
LEAST_PROBED_BYTES = 1 << 20
"""Of the largest transfer that is measured alone: less does not show the price of a byte."""
SWEPT_POWERS = (8, 6, 4, 2, 0)
"""The buckets of a sweep are all gradients over two to these powers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One stretch that is to be trained: how the work is divided, and DDP's buckets."""

    strategy: str
    bucket_bytes: int

    @property
    def name(self) -> str:
        """Return what tables and the log call it."""
        if self.strategy != "ddp":
            return self.strategy
        return f"ddp-{binary(self.bucket_bytes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabOptions:
    """What was asked for.

    Attributes:
        size: name of the model's size.
        ranks: processes.
        steps: of each stretch.
        trained: the stretches in their order.
        sweep: ``bucket``, ``sharding`` or empty.
        fault: where one rank pauses, ``none`` for nowhere.
        slow_rank: which.
        fault_ms: for how long in every step.
        log: where every synchronization is written.
    """

    size: str
    ranks: int
    steps: int
    trained: list[Trained]
    sweep: str
    fault: str
    slow_rank: int
    fault_ms: float
    log: Path

    @property
    def shape(self) -> Size:
        """The model's size."""
        return SIZES[self.size]

    @property
    def warm_up_steps(self) -> int:
        """Return how many steps of a stretch do not count: the first, or those before the fault."""
        least = min(WARM_UP_STEPS, self.steps - 2)
        return least if self.fault == "none" else max(least, self.steps // 3)

    @property
    def largest_bytes(self) -> int:
        """Return about the largest payload in training: a bucket, the table of words, a block."""
        size = self.shape
        block = 12 * size.width**2
        units = max(block, size.parameters(len(CLASSES)) - size.layers * block) * 4
        total = size.parameters(len(CLASSES)) * 4
        sent = [
            units if one.strategy != "ddp"
            else min(total, max(one.bucket_bytes, size.vocabulary * size.width * 4))
            for one in self.trained
        ]  # fmt: skip
        return max(*sent, LEAST_PROBED_BYTES)


def lab_options(
    *,
    size: str,
    ranks: int,
    steps: int | None,
    strategy: str,
    bucket: str | None,
    sweep: str,
    fault: str,
    slow_rank: int | None,
    fault_ms: float,
    log: Path,
    html: Path | None = None,
    png: Path | None = None,
) -> LabOptions:
    """Return the options, checked; nobody is to train for minutes and then lose what came out.

    Raises:
        ConfigError: one of them cannot be.
    """
    group_of(ranks)
    if ranks > MOST_RANKS:
        raise ConfigError(
            f"--ranks is {ranks}: this machine trains them all; give 2 to {MOST_RANKS}"
        )
    usual = SWEEP_STEPS if sweep else STEPS if fault == "none" else FAULT_STEPS
    count = usual if steps is None else steps
    whole(count, "--steps", "steps", least=LEAST_STEPS)
    slow = ranks - 1 if slow_rank is None else slow_rank
    if not 0 <= slow < ranks:
        raise ConfigError(f"--slow-rank is {slow}: ranks are 0 to {ranks - 1}")
    if slow_rank is not None and fault == "none":
        raise ConfigError(
            "--slow-rank is for --fault alone: give --fault backward, or leave it out"
        )
    positive(fault_ms, "--fault-ms", "milliseconds")
    if sweep and strategy != "ddp":
        raise ConfigError(
            f"--strategy {strategy} is not for --sweep {sweep}, which chooses itself: leave it out"
        )
    if bucket is not None and (sweep or strategy != "ddp"):
        raise ConfigError(
            "--bucket is for DDP alone: leave it out with --sweep, --strategy zero2 and zero3"
        )
    bucket_bytes = SIZES[size].bucket_bytes if bucket is None else parse_bytes(bucket, "--bucket")
    if bucket_bytes < LEAST_BUCKET_BYTES:
        raise ConfigError(
            f"--bucket is {bucket_bytes} bytes: give {LEAST_BUCKET_BYTES} or more, such as 256KiB"
        )
    for option, path in (("--log", log), ("--html", html), ("--png", png)):
        if path is not None:
            _check_file(option, path)
    if png is not None and importlib.util.find_spec("PIL") is None:
        raise ConfigError(
            "--png needs Pillow, which is not installed: pip install 'paceline-service[plots]', "
            "or ask for --html, which needs nothing"
        )
    if sweep == "bucket":
        total = SIZES[size].parameters(len(CLASSES)) * 4
        trained = [Trained(strategy="ddp", bucket_bytes=b) for b in swept_buckets(total)]
    elif sweep == "sharding":
        trained = [Trained(strategy=name, bucket_bytes=bucket_bytes) for name in STRATEGIES]
    else:
        trained = [Trained(strategy=strategy, bucket_bytes=bucket_bytes)]
    return LabOptions(
        size=size, ranks=ranks, steps=count, trained=trained, sweep=sweep, fault=fault,
        slow_rank=slow, fault_ms=fault_ms, log=log,
    )  # fmt: skip


def _check_file(option: str, path: Path) -> None:
    if path.is_dir() or not os.access(path.absolute().parent, os.W_OK):
        raise ConfigError(f"{option} {path} cannot be written; give the name of a file")


def swept_buckets(gradient_bytes: int) -> list[int]:
    """Return the sizes of a sweep, ascending: powers of two; the last holds all gradients."""
    most = 1 << (gradient_bytes - 1).bit_length()
    return [max(most >> power, LEAST_BUCKET_BYTES) for power in SWEPT_POWERS]


def binary(size_bytes: int) -> str:
    """Return a size in binary units, as DDP counts its buckets: ``256KiB``."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size_bytes >= unit:
            return f"{size_bytes / unit:.4g}{name}"
    return f"{size_bytes}B"
