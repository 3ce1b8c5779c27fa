"""``paceline demo``: train on four ranks, watch, and say at the end who set the pace."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live

from paceline.errors import ConfigError, PacelineError, TransportError
from paceline_service.demo.expect import Expectation, parse_expectation
from paceline_service.demo.feed import Feed
from paceline_service.demo.live import View, plain_line, render, save_picture
from paceline_service.demo.processes import Collector, Job, without_paceline
from paceline_service.export.text import render_text

JOB = "demo"
RANKS = 4
DEFAULT_STEPS = 280
MIN_STEPS = 30
TRAIN_SCRIPT = Path(__file__).with_name("train.py")
POLL_PERIOD_S = 0.5
PLAIN_PERIOD_S = 3.0
DRAIN_TIMEOUT_S = 20.0
MAX_SAID_LINES = 40
LAUNCHER_LINE = re.compile(r"[EW]\d{4} .*torch/distributed/elastic")
SHARED_MEMORY = Path("/dev/shm")


def main(argv: Sequence[str]) -> int:
    """Run the demonstration; returns 0 when it ran and a report was made."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        expectation = parse_expectation(options.expect) if options.expect else None
        if options.steps < MIN_STEPS:
            raise ConfigError(f"--steps {options.steps} shows nothing; give {MIN_STEPS} or more")
        _require_torch()
        with tempfile.TemporaryDirectory(
            prefix="paceline-demo-", ignore_cleanup_errors=True
        ) as directory:
            return _run(options, expectation, Path(directory), console)
    except PacelineError as error:
        print(f"paceline demo: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("paceline demo: stopped", file=sys.stderr)
        return 128 + signal.SIGINT


def job_environment(
    environment: Mapping[str, str], collector_url: str, token: str, rings: Path
) -> dict[str, str]:
    """Return the environment of the job: the caller's, one thread a rank, and our collector.

    ``RANK`` chooses the slow rank, but torchrun gives that name to every process it
    starts, so it travels under another one.
    """
    slow_rank = environment.get("DEMO_SLOW_RANK") or environment.get("RANK") or ""
    return {
        **without_paceline(environment),
        "DEMO_SLOW_RANK": slow_rank,
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        "PACELINE_URL": collector_url,
        "PACELINE_TOKEN": token,
        "PACELINE_RUNTIME_DIR": str(rings),
    }


def job_command(steps: int) -> list[str]:
    """Return the command that a user would type: ``paceline run -- torchrun ... train.py``."""
    return [
        sys.executable, "-m", "paceline", "run", "--job", JOB, "--",
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(RANKS), str(TRAIN_SCRIPT), "--steps", str(steps),
    ]  # fmt: skip


def _run(
    options: argparse.Namespace, expectation: Expectation | None, directory: Path, console: Console
) -> int:
    token = secrets.token_urlsafe(24)
    # The fault is the training script's secret: the process that answers cannot know it.
    blind = {n: v for n, v in os.environ.items() if n != "FAULT" and not n.startswith("DEMO_")}
    memory = SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK) else directory
    with tempfile.TemporaryDirectory(
        prefix="paceline-demo-", dir=memory, ignore_cleanup_errors=True
    ) as rings:
        collector = Collector(directory, blind, token, options.port)
        try:
            console.print(f"The page: [underline]{collector.url}/[/]", soft_wrap=True)
            environment = job_environment(os.environ, collector.url, token, Path(rings))
            report = _watch_job(options, collector.url, environment, console)
            _show(report, options.report, console)
            status = 0
            if expectation is not None and (difference := expectation.unmet(report)):
                print(f"paceline demo: {difference}", file=sys.stderr)
                status = 1
            if options.keep:
                _keep(collector, console)
            return status
        finally:
            collector.close()


def _watch_job(
    options: argparse.Namespace, url: str, environment: Mapping[str, str], console: Console
) -> dict[str, Any]:
    """Run the job to its end, showing it, and return the report."""
    feed = Feed(url, JOB)
    live = console.is_terminal and not options.no_live
    job = Job(job_command(options.steps), environment)
    try:
        started_s = time.monotonic()

        def view() -> View:
            return View(
                url=f"{url}/",
                elapsed_s=time.monotonic() - started_s,
                report=feed.report,
                phases=feed.phases,
                steps=feed.steps,
                losses=job.losses(),
                lines=job.lines(),
                total_steps=options.steps,
                ranks=RANKS,
            )

        if live:
            with Live(render(view()), console=console, auto_refresh=False) as screen:
                while job.status() is None:
                    feed.poll()
                    screen.update(render(view()), refresh=True)
                    time.sleep(POLL_PERIOD_S)
                _drain(feed)
                screen.update(render(view()), refresh=True)
        else:
            said_s = float("-inf")
            while job.status() is None:
                feed.poll()
                if time.monotonic() - said_s >= PLAIN_PERIOD_S:
                    said_s = time.monotonic()
                    console.print(plain_line(view()), soft_wrap=True, markup=False)
                time.sleep(POLL_PERIOD_S)
            _drain(feed)
        if options.picture is not None:
            save_picture(view(), options.picture)
        if job.status() != 0:
            said = "\n".join(what_failed(job.lines()))
            raise ConfigError(f"the training job ended with status {job.status()}:\n{said}")
    finally:
        job.close()
    if feed.report is None:
        said = "\n".join(job.lines()[-5:])
        raise TransportError(
            f"the collector gave no report about the job ({feed.problem}); the job said:\n{said}"
        )
    return feed.report


def what_failed(lines: Sequence[str]) -> list[str]:
    """Return what the ranks said before the launcher began to tell that they failed.

    Four ranks fail alike, so each line is given once.
    """
    of_ranks = takewhile(lambda line: not LAUNCHER_LINE.match(line), lines)
    kept = [line for line in dict.fromkeys(of_ranks) if not line.startswith("paceline")]
    return (kept or list(lines))[-MAX_SAID_LINES:]


def _drain(feed: Feed) -> None:
    """Read on until the collector knows that the job is over, then once more."""
    deadline = time.monotonic() + DRAIN_TIMEOUT_S
    while time.monotonic() < deadline and feed.state() in ("", "running"):
        time.sleep(POLL_PERIOD_S)
    feed.poll()


def _show(report: dict[str, Any], path: Path | None, console: Console) -> None:
    console.print()
    console.print(render_text(report), soft_wrap=True, markup=False)
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def _keep(collector: Collector, console: Console) -> None:
    console.print(f"\nThe page stays at {collector.url}/ until Ctrl-C.", soft_wrap=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        console.print()


def _require_torch() -> None:
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(
            "torch is not installed here, and the demonstration trains with it; `make setup` "
            "installs it, or: pip install torch (its CPU build is enough)"
        )


def _terminate(signum: int, frame: FrameType | None) -> None:
    """Leave through the same clean-up as Ctrl-C."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="paceline demo",
        description="Train a small transformer on 4 ranks on this machine, slow one of them, and "
        "watch it being named.",
        epilog="The training script takes its fault from the environment: FAULT is none, input, "
        "forward, backward (default), optimizer or host; RANK is the slow rank (default 2).",
    )
    parser.add_argument("--steps", type=int, default=DEFAULT_STEPS, help="steps to train")
    parser.add_argument("--no-live", action="store_true", help="print lines, draw no screen")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw the last screen as SVG")
    parser.add_argument("--port", type=int, default=0, help="of the collector; 0: a free one")
    parser.add_argument("--keep", action="store_true", help="leave the page up until Ctrl-C")
    parser.add_argument(
        "--expect", metavar="KIND[:RANK[:PHASE]]", help="exit 1 when the report says otherwise"
    )
    return parser
