"""What the verbs that ask a collector share: its address and the path of a job."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, urlencode

import typer

from paceline_service.client import DEFAULT_URL

__all__ = ["DEFAULT_URL", "AttemptOption", "JobArgument", "UrlOption", "job_path"]
UrlOption = Annotated[
    str, typer.Option("--url", envvar="PACELINE_URL", metavar="URL", help="The collector.")
]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's name.")]
AttemptOption = Annotated[
    int | None, typer.Option(metavar="N", help="Which attempt, from 1; else the latest.")
]


def job_path(job: str, what: str, attempt: int | None, **query: object) -> str:
    """Return the path of ``what`` (``report``, ``event-log``) of a job at a collector."""
    asked = {"attempt": attempt, **query}
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    return f"/v1/jobs/{quote(job, safe='')}/{what}" + (f"?{given}" if given else "")
