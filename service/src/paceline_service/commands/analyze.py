"""``paceline analyze PATH...``: the answer from files, without a collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import InputError
from paceline_service.analysis.report import KINDS
from paceline_service.commands.analyzed import analyzed
from paceline_service.commands.output import (
    ReportFormat,
    exit_status,
    report_format,
    write_report,
)
from paceline_service.commands.run import run_command


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_analyze, "analyze", argv)


def _analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Event logs, profiler traces, or directories of them."),
    ],
    form: Annotated[
        ReportFormat | None, typer.Option("--format", help="How to write the report.")
    ] = None,
    fail_on: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Exit 1 only for this kind of finding, else 0."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse input of which anything is unusable.")
    ] = False,
) -> int:
    """Name the rank that slows a job, from its event logs or traces.

    Exit status: 0 healthy, 1 findings, 2 bad input, 3 insufficient evidence.
    """
    if fail_on is not None and fail_on not in KINDS:
        raise InputError(f"--fail-on {fail_on!r} is none of {', '.join(KINDS)}")
    chosen = report_format(form, output)
    with analyzed(paths, verb="analyze", strict=strict) as answer:
        write_report(answer.report, chosen, output)
        return exit_status(answer.report, fail_on)
