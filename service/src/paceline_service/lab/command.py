"""``paceline lab``: train in data parallel and see every synchronization, measured and modelled."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paceline.counted import counted
from paceline_service.commands.answer import FormatOption, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.run import run_command
from paceline_service.demo.processes import Collector
from paceline_service.demo.scratch import scratch_directory
from paceline_service.demo.session import keep_page, require_torch, ring_directory, terminate
from paceline_service.lab.hook import build, wants_build
from paceline_service.lab.links import fit_wires
from paceline_service.lab.options import LabOptions, lab_options
from paceline_service.lab.report import lab_answer
from paceline_service.lab.run import new_token, run_job
from paceline_service.lab.synclog import write_log

DEFAULT_LOG = Path("paceline-lab.jsonl")


class SizeName(str, Enum):
    """How large the model is."""

    TINY = "tiny"
    SMALL = "small"
    MEDIUM = "medium"
    DISTILBERT = "distilbert"


class StrategyName(str, Enum):
    """What each rank keeps."""

    DDP = "ddp"
    ZERO2 = "zero2"
    ZERO3 = "zero3"


class Sweep(str, Enum):
    """What is varied."""

    BUCKET = "bucket"
    SHARDING = "sharding"


class FaultPlace(str, Enum):
    """Where one rank pauses in every step from a third of the run on."""

    NONE = "none"
    INPUT = "input"
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    HOST = "host"


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_lab, "lab", argv)


def _lab(
    size: Annotated[
        SizeName, typer.Option(help="Of the model; distilbert has 66 M parameters.")
    ] = SizeName.SMALL,
    ranks: Annotated[int, typer.Option(help="Processes that train, 2 or more.")] = 2,
    steps: Annotated[
        int | None,
        typer.Option(help="Of each stretch; default 50, of a sweep 20, with a fault 120."),
    ] = None,
    strategy: Annotated[
        StrategyName, typer.Option(help="What ranks keep: all, or their share (FSDP2).")
    ] = StrategyName.DDP,
    bucket: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Of DDP's buckets: 256KiB, 4MiB.")
    ] = None,
    sweep: Annotated[
        Sweep | None, typer.Option(help="Train once for each size of bucket, or each strategy.")
    ] = None,
    fault: Annotated[
        FaultPlace, typer.Option(help="Where one rank pauses from a third of the steps on.")
    ] = FaultPlace.NONE,
    slow_rank: Annotated[
        int | None, typer.Option(help="Which rank pauses; default the last.")
    ] = None,
    fault_ms: Annotated[float, typer.Option(help="For how long it pauses in every step.")] = 100.0,
    log: Annotated[
        Path, typer.Option(metavar="FILE", help="Every synchronization, as lines of JSON.")
    ] = DEFAULT_LOG,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
    port: Annotated[int, typer.Option(help="Of the collector; 0: a free one.")] = 0,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the page up until Ctrl-C.")] = False,
) -> int:
    """Train a small transformer on sentences, and see every synchronization of its gradients.

    DDP or fully sharded, on this machine, with Gloo or NCCL. What was measured stands beside what
    the alpha-beta model says.
    """
    options = lab_options(
        size=size.value, ranks=ranks, steps=steps, strategy=strategy.value, bucket=bucket,
        sweep=sweep.value if sweep is not None else "", fault=fault.value, slow_rank=slow_rank,
        fault_ms=fault_ms, log=log, html=html, png=png,
    )  # fmt: skip
    require_torch("the lab")
    # JSON alone belongs on stdout.
    console = Console(highlight=False, stderr=output_format is Format.JSON)
    signal.signal(signal.SIGTERM, terminate)
    if wants_build(os.environ):
        console.print("Compiling the hook that times transfers, once for this torch ...")
        if not build():
            console.print("It could not be compiled; some transfers are told as bounds.")
    with (
        scratch_directory("paceline-lab-") as inner,
        ring_directory(inner) as rings,
    ):
        collector = Collector(inner, os.environ, new_token(), port)
        try:
            return _train(options, collector, inner, rings, console,
                          output_format, html, png, keep)  # fmt: skip
        finally:
            collector.close()


def _train(
    options: LabOptions,
    collector: Collector,
    directory: Path,
    rings: Path,
    console: Console,
    form: Format,
    html: Path | None,
    png: Path | None,
    keep: bool,
) -> int:
    console.print(f"The page: [underline]{collector.url}/[/]", soft_wrap=True)
    run = run_job(options, collector, directory, rings, console)
    wires = fit_wires(run.measured.probe)
    console.print()
    status = give(lab_answer(options, run, wires), form, html=html, png=png)
    # Behind the answer, which is not to be lost for a full disk.
    count = write_log(options.log, run.manifest, run.measured, wires)
    told = f"\n{counted(count, 'synchronization')}: {options.log}"
    console.print(told, soft_wrap=True, markup=False)
    for plots in (html, png):
        if plots is not None:
            console.print(f"Plots: {plots}", soft_wrap=True, markup=False)
    if keep:
        keep_page(collector, console)
    return status
