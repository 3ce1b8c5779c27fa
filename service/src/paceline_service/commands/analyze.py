"""``paceline analyze PATH...``: the answer from files, without a collector."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import InputError
from paceline_service.analysis.report import KINDS
from paceline_service.commands.output import (
    ReportFormat,
    exit_status,
    report_format,
    write_report,
)
from paceline_service.commands.run import run_command, warn
from paceline_service.importers.faults import show_nothing
from paceline_service.importers.sources import analyze_paths

_CLEAR_LINE = "\r\x1b[K"


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
    with _progress() as reading:
        answer = analyze_paths(paths, reading)
    if strict and answer.faults.lossy:
        raise InputError(f"--strict, and not all is usable: {'; '.join(answer.faults.notes())}")
    for note in answer.faults.notes():
        warn(f"paceline analyze: {note}")
    write_report(answer.report, chosen, output)
    return exit_status(answer.report, fail_on)


@contextmanager
def _progress() -> Iterator[Callable[[Path], None]]:
    """Name the file that is being read on one line of a terminal, and wipe it out at the end."""
    shown = 0

    def reading(path: Path) -> None:
        nonlocal shown
        shown += 1
        name = "".join(c if c.isprintable() else "?" for c in path.name)[:60]
        sys.stderr.write(f"{_CLEAR_LINE}reading {name} ({shown})")
        sys.stderr.flush()

    if not sys.stderr.isatty():
        yield show_nothing
        return
    try:
        yield reading
    finally:
        sys.stderr.write(_CLEAR_LINE if shown else "")
