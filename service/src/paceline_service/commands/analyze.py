"""``paceline analyze PATH...``: the answer from event logs, without a collector."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import InputError
from paceline_service.analysis.report import KINDS
from paceline_service.commands.output import Format, exit_status, write_report
from paceline_service.commands.run import run_command, warn
from paceline_service.importers.events import read_event_log
from paceline_service.importers.offline import analyze_log


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_analyze, "analyze", argv)


def _analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Event logs (.gz too), or directories of them."),
    ],
    form: Annotated[Format, typer.Option("--format", help="How to write the report.")] = (
        Format.TEXT
    ),
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
    """Name the rank that slows a job, from its event logs.

    Exit status: 0 healthy, 1 findings, 2 bad input, 3 insufficient evidence.
    """
    if fail_on is not None and fail_on not in KINDS:
        raise InputError(f"--fail-on {fail_on!r} is none of {', '.join(KINDS)}")
    with read_event_log(paths) as log:
        if strict and log.faults.lossy:
            raise InputError(f"--strict, and not all is usable: {'; '.join(log.faults.notes())}")
        for note in log.faults.notes():
            warn(f"paceline analyze: {note}")
        report = analyze_log(log).to_dict()
        if log.job:
            report["job"]["name"] = log.job
    write_report(report, form, output)
    return exit_status(report, fail_on)
