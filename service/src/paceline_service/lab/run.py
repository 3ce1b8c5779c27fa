"""The lab's job: a collector of its own, ``paceline run -- torchrun``, and what was measured."""

from __future__ import annotations

import os
import secrets
import sys
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from paceline.errors import TransportError
from paceline_service.demo.feed import Feed
from paceline_service.demo.live import headline_of, sparkline
from paceline_service.demo.processes import Collector, Job, without_paceline
from paceline_service.demo.session import watch
from paceline_service.lab.options import LabOptions
from paceline_service.lab.plans import Manifest, read_manifest
from paceline_service.lab.syncs import Measured, read_measured

JOB = "lab"
TRAIN_SCRIPT = Path(__file__).parent / "training" / "train.py"
PLAIN_PERIOD_S = 3.0
LOG_TIMEOUT_S = 60.0
SPARK_CELLS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came out: what the script told, what Paceline measured, and its report."""

    manifest: Manifest
    measured: Measured
    report: dict[str, Any]


def run_job(
    options: LabOptions, collector: Collector, directory: Path, rings: Path, console: Console
) -> Run:
    """Train, showing how it goes, and return what was measured.

    Raises:
        ConfigError: the training failed.
        TransportError: the collector gave no report.
    """
    manifest = directory / "manifest.json"
    feed = Feed(collector.url, JOB)
    job = Job(job_command(options, manifest), job_environment(os.environ, collector, rings))
    try:
        _show(job, feed, console)
    finally:
        job.close()
    if feed.report is None:
        raise TransportError(f"the collector gave no report about the job ({feed.problem})")
    told = read_manifest(manifest)
    log = directory / "lab.events.jsonl"
    address = f"{collector.url}/v1/jobs/{JOB}/event-log"
    with urllib.request.urlopen(address, timeout=LOG_TIMEOUT_S) as answer, log.open("wb") as file:
        while chunk := answer.read(1 << 20):
            file.write(chunk)
    return Run(manifest=told, measured=read_measured(log, told), report=feed.report)


def job_command(options: LabOptions, manifest: Path) -> list[str]:
    """Return the command that a user would type: ``paceline run -- torchrun ... train.py``."""
    stretches = [f"{one.name}:{one.strategy}:{one.bucket_bytes}" for one in options.trained]
    return [
        sys.executable, "-m", "paceline", "run", "--job", JOB, "--",
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(options.ranks), str(TRAIN_SCRIPT),
        "--probe-bytes", str(options.largest_bytes), "--size", options.size,
        "--steps", str(options.steps), "--manifest", str(manifest),
        "--fault", options.fault, "--slow-rank", str(options.slow_rank),
        "--fault-ms", str(options.fault_ms),
        *(part for stretch in stretches for part in ("--stretch", stretch)),
    ]  # fmt: skip


def job_environment(
    environment: Mapping[str, str], collector: Collector, rings: Path
) -> dict[str, str]:
    """Return the environment of the job: the caller's, a thread a rank, and our collector."""
    inner = {
        **without_paceline(environment),
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PYTHONWARNINGS": "ignore",  # of torch about its own names
        "PACELINE_URL": collector.url,
        "PACELINE_TOKEN": collector.token,
        "PACELINE_RUNTIME_DIR": str(rings),
    }
    if "PACELINE_NATIVE" in environment:
        inner["PACELINE_NATIVE"] = environment["PACELINE_NATIVE"]
    return inner


def _show(job: Job, feed: Feed, console: Console) -> None:
    """Watch the job: one line that changes in a terminal, a line now and then elsewhere."""
    said_s, said = float("-inf"), ""

    def line() -> str:
        steps = [text for text in job.lines() if text.startswith("step ")]
        return steps[-1] if steps else headline_of(None)

    def picture() -> Text:
        losses = [point.loss for point in job.losses()][-SPARK_CELLS:]
        spark = sparkline(losses, 0.0, max(losses, default=0.0))
        return Text.assemble((spark, "green"), "  " if spark else "", line())

    def plain() -> None:
        nonlocal said_s, said
        feed.poll()
        if line() != said and time.monotonic() - said_s >= PLAIN_PERIOD_S:
            said_s, said = time.monotonic(), line()
            console.print(said, soft_wrap=True, markup=False)

    if not console.is_terminal:
        watch(job, feed, plain)
        return
    with Live(picture(), console=console, auto_refresh=False) as screen:

        def draw() -> None:
            feed.poll()
            screen.update(picture(), refresh=True)

        watch(job, feed, draw)


def new_token() -> str:
    """Return a token for a collector that nobody else is to write to."""
    return secrets.token_urlsafe(24)
