"""``paceline report JOB``: the collector's report on a job."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from paceline_service.client import Client
from paceline_service.commands.flops_options import (
    FlopsOption,
    ParametersOption,
    TokensOption,
    flops_of,
    tell_flops,
)
from paceline_service.commands.output import ReportFormat, report_format, write_report
from paceline_service.commands.remote import DEFAULT_URL, AttemptOption, JobArgument, UrlOption
from paceline_service.commands.report_story import tell_story
from paceline_service.commands.run import run_command, warn


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_report, "report", argv)


def _report(
    job: JobArgument,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    form: Annotated[
        ReportFormat | None,
        typer.Option("--format", help="How to write it; else as FILE ends (.html, .json)."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")
    ] = None,
    flops_per_step: FlopsOption = None,
    parameters: ParametersOption = None,
    tokens_per_step: TokensOption = None,
) -> int:
    """Print what a collector found out about a job, or write it as a file for a ticket.

    Exit status: 0 when the report was written, whatever it says, 2 when not.
    """
    chosen = report_format(form, output)
    flops = flops_of(flops_per_step, parameters, tokens_per_step)
    with Client(url, retries=2) as client:
        report = client.report(job, attempt)
        tell_flops(cast(dict[str, Any], report), flops)
        story = None
        if chosen is ReportFormat.HTML:
            story = tell_story(client, report, time.time_ns())
    write_report(report, chosen, output, story)
    if output is not None:
        warn(f"{output}: {output.stat().st_size / 1000:,.0f} kB")
    return 0
