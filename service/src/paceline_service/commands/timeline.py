"""``paceline timeline JOB``: some steps of a job of a collector for Perfetto."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

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
    return run_command(_timeline, "timeline", argv)


def _timeline(
    job: JobArgument,
    url: UrlOption = DEFAULT_URL,
    attempt: AttemptOption = None,
    first: Annotated[
        int | None, typer.Option("--from", metavar="STEP", help="First step; else the newest.")
    ] = None,
    last: Annotated[int | None, typer.Option("--to", metavar="STEP", help="Last step.")] = None,
    ranks: Annotated[
        str | None, typer.Option(metavar="LIST", help="Ranks to draw, for example 0,5-7.")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Steps at most.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write it here, packed if it ends in .gz."
        ),
    ] = None,
) -> int:
    """Write a timeline that ui.perfetto.dev and chrome://tracing open.

    Without -o it goes to JOB.trace.json here. Exit status: 0 when it was written, 2 when not.
    """
    query = {"from": first, "to": last, "ranks": ranks, "limit": limit}
    target = job_path(job, "timeline", attempt, **query)
    body = b"".join(Client(url).stream(target))
    try:
        told = json.loads(body)["otherData"]
    except ValueError as error:
        raise TransportError("the timeline broke off; ask for it again") from error
    path = output if output is not None else Path(f"{job}.trace.json")
    with replacing(path) as file:
        file.write(gzip.compress(body, mtime=0) if path.name.endswith(".gz") else body)
    told_of = f"steps {told['first_step']} to {told['last_step']}, ranks {told['ranks']}"
    rest = "" if told["next_from"] is None else f"; go on with --from {told['next_from']}"
    warn(f"{path}: {told_of}{rest}")
    return 0
