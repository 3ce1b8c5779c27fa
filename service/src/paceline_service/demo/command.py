"""``paceline demo``: train on four ranks, watch, and say at the end who set the pace."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from paceline.errors import ConfigError, PacelineError, TransportError
from paceline_service.demo.expect import Expectation, parse_expectation
from paceline_service.demo.feed import Feed
from paceline_service.demo.live import View, plain_line, render, save_picture
from paceline_service.demo.processes import Collector, Job, without_paceline
from paceline_service.demo.scratch import scratch_directory
from paceline_service.demo.session import (
    keep_page,
    require_torch,
    ring_directory,
    terminate,
    watch,
)
from paceline_service.export.text import render_text

JOB = "demo"
RANKS = 4
DEFAULT_STEPS = 280
MIN_STEPS = 30
TRAIN_SCRIPT = Path(__file__).with_name("train.py")
PLAIN_PERIOD_S = 3.0


def main(argv: Sequence[str]) -> int:
    """Run the demonstration; returns 0 when it ran and a report was made."""
    options = _parser().parse_args(argv)
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, terminate)
    try:
        expectation = parse_expectation(options.expect) if options.expect else None
        if options.steps < MIN_STEPS:
            raise ConfigError(f"--steps {options.steps} shows nothing; give {MIN_STEPS} or more")
        require_torch("the demonstration")
        with scratch_directory("paceline-demo-") as directory:
            return _run(options, expectation, directory, console)
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
    with ring_directory(directory) as rings:
        collector = Collector(directory, blind, token, options.port)
        try:
            console.print(f"The page: [underline]{collector.url}/[/]", soft_wrap=True)
            environment = job_environment(os.environ, collector.url, token, rings)
            report = _watch_job(options, collector.url, environment, console)
            _show(report, options.report, console)
            status = 0
            if expectation is not None and (difference := expectation.unmet(report)):
                print(f"paceline demo: {difference}", file=sys.stderr)
                status = 1
            if options.keep:
                keep_page(collector, console)
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

        said_s = float("-inf")

        def say_line() -> None:
            nonlocal said_s
            feed.poll()
            if job.status() is None and time.monotonic() - said_s >= PLAIN_PERIOD_S:
                said_s = time.monotonic()
                console.print(plain_line(view()), soft_wrap=True, markup=False)

        if live:
            with Live(render(view()), console=console, auto_refresh=False) as screen:

                def draw() -> None:
                    feed.poll()
                    screen.update(render(view()), refresh=True)

                watch(job, feed, draw)
        else:
            watch(job, feed, say_line)
        if options.picture is not None:
            save_picture(view(), options.picture)
    finally:
        job.close()
    if feed.report is None:
        said = "\n".join(job.lines()[-5:])
        raise TransportError(
            f"the collector gave no report about the job ({feed.problem}); the job said:\n{said}"
        )
    return feed.report


def _show(report: dict[str, Any], path: Path | None, console: Console) -> None:
    console.print()
    console.print(render_text(report), soft_wrap=True, markup=False)
    if path is not None:
        path.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


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
