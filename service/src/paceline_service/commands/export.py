"""``paceline export JOB``: a job of a collector as an event log."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from paceline.counted import counted
from paceline.errors import TransportError
from paceline_service.client import Client
from paceline_service.commands.output import replacing
from paceline_service.commands.remote import (
    DEFAULT_URL,
    AttemptOption,
    JobArgument,
    UrlOption,
    job_path,
)
from paceline_service.commands.run import run_command, warn


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_export, "export", argv)


def _export(
    job: JobArgument,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it here, packed if it ends in .gz."
        ),
    ] = None,
) -> int:
    """Write the event log of a job; `paceline analyze` gives the same report from it.

    Exit status: 0 when it was written whole, 2 when not; then there is no file.
    """
    chunks = Client(url).stream(job_path(job, "event-log", attempt))
    if output is None:
        _copy(chunks, sys.stdout.buffer)
        return 0
    with replacing(output) as file:
        if output.name.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                lines = _copy(chunks, packed)
        else:
            lines = _copy(chunks, file)
    warn(f"{output}: {counted(lines, 'line')}")
    return 0


def _copy(chunks: Iterable[bytes], out: BinaryIO | gzip.GzipFile) -> int:
    """Write ``chunks`` and return the number of lines.

    Raises:
        TransportError: it does not end with a whole line, so the collector broke off.
    """
    lines, last = 0, b""
    for chunk in chunks:
        out.write(chunk)
        lines += chunk.count(b"\n")
        last = chunk or last
    if not last.endswith(b"\n"):
        raise TransportError("the event log broke off in a line; export it again")
    return lines
