"""``paceline analyze PATH...``: the answer from files, without a collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import InputError
from paceline_service.commands.analyze_outputs import AnalyzeFormat, Output, chosen_outputs
from paceline_service.commands.analyze_story import StepsSeen
from paceline_service.commands.analyze_writer import Asked, write_all
from paceline_service.commands.analyzed import analyzed
from paceline_service.commands.flops_options import (
    FlopsOption,
    ParametersOption,
    TokensOption,
    flops_of,
    tell_flops,
)
from paceline_service.commands.output import exit_status, kinds_to_fail_on
from paceline_service.commands.run import run_command


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_analyze, "analyze", argv)


def _analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH",
            help="What a job has left behind: traces, dumps, logs; files, or folders of them.",
        ),
    ],
    form: Annotated[
        AnalyzeFormat | None,
        typer.Option("--format", help="How to write the answer; else as the name of FILE says."),
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="KIND[,KIND...]", help="Exit 1 only for these kinds of finding, else 0."
        ),
    ] = None,
    output: Annotated[
        list[Path] | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write it here; may be given for several (.html, .json, .csv, .perfetto.json.gz).",
        ),
    ] = None,
    steps: Annotated[
        str | None,
        typer.Option(metavar="FIRST-LAST", help="Steps that a Perfetto file draws."),
    ] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Ranks that a Perfetto file draws.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Compare two runs: give two PATHs, before and after."),
    ] = False,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="RATIO", help="With --compare: what is smaller is no difference (0.005)."
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse input of which anything is unusable.")
    ] = False,
    flops_per_step: FlopsOption = None,
    parameters: ParametersOption = None,
    tokens_per_step: TokensOption = None,
) -> int:
    """Name the rank that slows a job, from its traces, dumps and logs.

    Formats are told by content; several of one job give one answer (docs/offline.md).

    With --compare: tell what differs between two runs.

    Exit status: 0 healthy, 1 findings, 2 bad input, 3 insufficient evidence. With --compare: 0 no
    worse, 1 slower or a finding came, 2 bad input, 3 too few steps.
    """
    outputs = chosen_outputs(form, output or [])
    if compare:
        if steps is not None or ranks is not None:
            raise InputError("--steps and --ranks are for a Perfetto file, not for --compare")
        return _compare(paths, outputs, fail_on, tolerance, strict=strict)
    if tolerance is not None:
        raise InputError("--tolerance is for --compare")
    kinds = kinds_to_fail_on(fail_on)
    flops = flops_of(flops_per_step, parameters, tokens_per_step)
    asked = Asked.of(paths, outputs, steps=steps, ranks=ranks)
    seen = StepsSeen()
    try:
        see = seen.see if asked.needs_steps else None
        with analyzed(paths, verb="analyze", strict=strict, see=see) as answer:
            tell_flops(answer.report, flops)
            write_all(answer, seen, asked)
            return exit_status(answer.report, kinds)
    finally:
        seen.close()


def _compare(
    paths: Sequence[Path],
    outputs: Sequence[Output],
    fail_on: str | None,
    tolerance: float | None,
    *,
    strict: bool,
) -> int:
    from paceline_service.commands.compare import REGRESSION, compare

    if tolerance is not None and not 0 <= tolerance < 1:
        raise InputError(f"--tolerance {tolerance} is no ratio from 0 to 1; 0.02 is 2 %")
    kinds = kinds_to_fail_on(fail_on, REGRESSION)
    return compare(paths, outputs, fail_on=kinds, tolerance=tolerance, strict=strict)
