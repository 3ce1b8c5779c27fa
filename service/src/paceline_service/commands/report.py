"""``paceline report JOB``: the collector's report on a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paceline_service.client import Client
from paceline_service.commands.output import Format, write_report
from paceline_service.commands.remote import DEFAULT_URL, AttemptOption, JobArgument, UrlOption
from paceline_service.commands.run import run_command


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_report, "report", argv)


def _report(
    job: JobArgument,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    form: Annotated[Format, typer.Option("--format", help="How to write the report.")] = (
        Format.TEXT
    ),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")
    ] = None,
) -> int:
    """Print what a collector found out about a job.

    Exit status: 0 when the report was written, whatever it says, 2 when not.
    """
    write_report(Client(url).report(job, attempt), form, output)
    return 0
