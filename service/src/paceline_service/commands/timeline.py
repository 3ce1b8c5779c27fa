"""``paceline timeline JOB``: some steps of a job of a collector for Perfetto."""

from __future__ import annotations

import contextlib
import gzip
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

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

MOST_STEPS = 1000
"""Of one timeline: the collector's own limit (docs/api.md)."""
HEAD_BYTES = 8 << 20
"""What the collector tells of a timeline stands before its events, and is shorter than this."""
TIMEOUT_S = 300.0
"""One timeline is made at a time, and half a million records take a while."""
_HEAD = b'{"displayTimeUnit":"ms","otherData":'
_TAIL = b"]}\n"
_CLEAR_LINE = "\r\x1b[K"
Json = dict[str, Any]


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
    limit: Annotated[
        int | None,
        typer.Option(metavar="N", help="Steps at most; else 20, or all --from to --to."),
    ] = None,
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
    if limit is None and first is not None and last is not None:
        limit = min(max(last - first + 1, 1), MOST_STEPS)
    query = {"from": first, "to": last, "ranks": ranks, "limit": limit}
    target = job_path(job, "timeline", attempt, **query)
    path = output if output is not None else Path(f"{job}.trace.json")
    with replacing(path) as file, _progress(path) as shown:
        chunks = shown(Client(url, timeout_s=TIMEOUT_S).stream(target))
        if path.name.endswith(".gz"):
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                told = _copy(chunks, packed)
        else:
            told = _copy(chunks, file)
    for line in _summary(path, told):
        warn(line)
    return 0


def _copy(chunks: Iterator[bytes], out: BinaryIO | gzip.GzipFile) -> Json:
    """Write a timeline piece by piece, and return what it tells of itself.

    Raises:
        TransportError: it is not whole, or no timeline.
    """
    head, told, last = bytearray(), None, b""
    for chunk in chunks:
        out.write(chunk)
        last = (last + chunk)[-len(_TAIL) :]
        if told is None:
            head += chunk
            told = _told(head)
            if told is None and len(head) > HEAD_BYTES:
                raise TransportError(
                    "what the collector sent is no timeline; is it of a new version?"
                )
    if told is None or last != _TAIL:
        raise TransportError("the timeline broke off; ask for it again")
    return told


def _told(head: bytearray) -> Json | None:
    """Return the object ``otherData``, None while it has not come as a whole."""
    if not head.startswith(_HEAD[: len(head)]):
        raise TransportError("what the collector sent is no timeline; is it of a new version?")
    with contextlib.suppress(ValueError):
        told, _ = json.JSONDecoder().raw_decode(head.decode("utf-8", "replace"), len(_HEAD))
        return told if isinstance(told, dict) else None
    return None


def _summary(path: Path, told: Json) -> list[str]:
    """Return what was written, what is missing of it, and what to do with it."""
    events = sum(told["events"].values())
    size = path.stat().st_size / 1e6
    lines = [
        f"{path}: steps {told['first_step']} to {told['last_step']}, ranks {told['ranks']}, "
        f"{counted(events, 'event')}, {size:.1f} MB"
    ]
    if told["next_from"] is not None:
        last = told["asked"]["to"]
        lines.append(
            f"cut at step {told['last_step']}; go on with --from {told['next_from']} --to {last}"
        )
    elif told["cut"]:
        lines.append(f"not all of {told['world_size']:,} ranks: name others with --ranks")
    if told["lagging"]:
        lines.append(f"ranks {told['lagging']} had not sent all yet; ask again for the rest")
    lines.append(
        "open it in https://ui.perfetto.dev (it stays on your machine) or chrome://tracing"
    )
    return lines


@contextmanager
def _progress(path: Path) -> Iterator[Any]:
    """Show on one line of a terminal how much has come, and wipe it out at the end."""
    terminal = sys.stderr.isatty()

    def say(what: str) -> None:
        if terminal:
            sys.stderr.write(f"{_CLEAR_LINE}{what}")
            sys.stderr.flush()

    def shown(chunks: Iterator[bytes]) -> Iterator[bytes]:
        size = told = 0
        say("the collector draws the timeline ...")
        for chunk in chunks:
            size += len(chunk)
            if size - told > 1 << 20:
                told = size
                say(f"{size / 1e6:.0f} MB")
            yield chunk

    try:
        yield shown
    finally:
        say("")
