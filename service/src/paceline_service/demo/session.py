"""What a verb that trains here needs: torch, memory for rings, a job to watch, a page to keep."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from types import FrameType

from rich.console import Console

from paceline.errors import ConfigError
from paceline_service.demo.feed import Feed
from paceline_service.demo.processes import Collector, Job
from paceline_service.demo.scratch import scratch_directory

POLL_PERIOD_S = 0.5
DRAIN_TIMEOUT_S = 20.0
MAX_SAID_LINES = 40
LAUNCHER_LINE = re.compile(r"[EW]\d{4} .*torch/distributed/elastic")
SHARED_MEMORY = Path("/dev/shm")


def require_torch(what: str) -> None:
    """Raise where torch is not installed; ``what`` trains with it.

    Raises:
        ConfigError: it is not.
    """
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(
            f"torch is not installed here, and {what} trains with it; `make setup` "
            "installs it, or: pip install torch (its CPU build is enough)"
        )


def ring_directory(directory: Path) -> AbstractContextManager[Path]:
    """Return a directory for rings, in shared memory where that can be written."""
    memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else directory
    return scratch_directory("paceline-rings-", memory)


def watch(job: Job, feed: Feed, show: Callable[[], None]) -> None:
    """Call ``show`` until the job is over and the collector knows it.

    Raises:
        ConfigError: the job failed; the message has what its ranks said.
    """
    while job.status() is None:
        show()
        time.sleep(POLL_PERIOD_S)
    drain(feed)
    show()
    if job.status() != 0:
        said = "\n".join(what_failed(job.lines()))
        raise ConfigError(f"the training job ended with status {job.status()}:\n{said}")


def drain(feed: Feed) -> None:
    """Read on until the collector knows that the job is over, then once more."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while time.monotonic() < deadline and feed.state() in ("", "running"):
        time.sleep(POLL_PERIOD_S)
    feed.poll()


def what_failed(lines: Sequence[str]) -> list[str]:
    """Return what the ranks said before the launcher began to tell that they failed.

    Four ranks fail alike, so each line is given once.
    """
    of_ranks = takewhile(lambda line: not LAUNCHER_LINE.match(line), lines)
    kept = [line for line in dict.fromkeys(of_ranks) if not line.startswith("paceline")]
    return (kept or list(lines))[-MAX_SAID_LINES:]


def keep_page(collector: Collector, console: Console) -> None:
    """Leave the collector up until Ctrl-C."""
    console.print(f"\nThe page stays at {collector.url}/ until Ctrl-C.", soft_wrap=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print()


def terminate(signum: int, frame: FrameType | None) -> None:
    """Leave through the same clean-up as Ctrl-C."""
    raise KeyboardInterrupt
