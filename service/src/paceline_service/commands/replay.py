"""``paceline replay PATH... --url URL``: files of a job through the real wire, as a new attempt.

Whatever has timed records can be sent (docs/replay.md): it is read, told and analysed as
``paceline analyze`` does it, and then goes to a collector as if its ranks ran now.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from paceline.clock import mono_ns, wall_ns
from paceline.errors import InputError, TransportError
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import Records
from paceline_service.client import Client, ProblemError
from paceline_service.commands.analyzed import analyzed
from paceline_service.commands.frames import ReplayFrames, job_name
from paceline_service.commands.remote import DEFAULT_URL, UrlOption
from paceline_service.commands.run import run_command, warn
from paceline_service.export.words import Json, headline
from paceline_service.importers.answer import Answer
from paceline_service.importers.log import EventLog
from paceline_service.jobs.imported import told_of

MAX_BODY_BYTES = 1 << 20
"""Frames are gathered into one request up to here; the collector takes 8 MiB."""
STEPS_PER_ROUND = 16
"""No rank is sent further ahead of the others; the analysis does not wait for those far behind."""
_POLL_S = 0.2
_PAUSE_S = 1.0
_RETRIED = frozenset({429, 503})


def main(argv: Sequence[str]) -> int:
    """Run the verb and return its exit status."""
    return run_command(_replay, "replay", argv)


class At(str, Enum):
    """When the job is to have run, for whoever looks at the collector."""

    NOW = "now"
    ORIGINAL = "original"


def _replay(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Event logs, profiler traces, or directories of them."),
    ],
    url: UrlOption = DEFAULT_URL,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Its name there; else the log's, or the folder's."),
    ] = None,
    at: Annotated[
        At,
        typer.Option(
            "--at", help="Whether it ends now, or keeps the wall-clock times of the files."
        ),
    ] = At.NOW,
    speed: Annotated[
        float | None,
        typer.Option(metavar="X", help="X times as fast as it happened; else as fast as it goes."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="S", help="Seconds to wait for the analysis.")
    ] = 60.0,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse input of which anything is unusable.")
    ] = False,
) -> int:
    """Send files of a job to a collector: event logs, profiler traces, all with timed records.

    Exit status: 0 when all was accepted and analysed, 2 when not; the verdict does not count.
    """
    if speed is not None and not speed > 0:
        raise InputError(f"--speed {speed} is not above 0; leave it out to send at once")
    if job is not None and job_name(job) != job:
        raise InputError(f"--job {job!r} is no name; use up to 128 of A-Z a-z 0-9 . _ -")
    seen: list[JobAnalysis] = []

    def see(analysis: JobAnalysis, _rows: object) -> None:
        seen[:] = [analysis]

    with Client(url) as client:
        client.get_json("/v1/jobs?limit=1")  # before long files are read: is it there, may we?
    with Client(url) as client, analyzed(paths, verb="replay", strict=strict, see=see) as answer:
        log = _timed(answer)
        name = job or log.job or job_name(_stem(paths))
        took_ns = _duration_ns(log) / speed if speed else 0
        frames = ReplayFrames(
            log,
            job=name,
            end_wall_ns=None if at is At.ORIGINAL else wall_ns() + int(took_ns),
            told=told_of(seen[0].report().to_dict(), _report_on(log, answer)),
        )
        for body in _bodies(log, frames, speed):
            _post(client, body, timeout_s)
        return _tell(client, frames, timeout_s)


def _timed(answer: Answer) -> EventLog:
    """Return the timed records of files.

    Raises:
        InputError: they have none.
    """
    if answer.log is None:
        formats = " and ".join(told["format"] for told in answer.report["data"]["sources"])
        raise InputError(
            f"files of the format {formats} hold no timeline that all ranks share, so there is "
            "nothing to replay: `paceline analyze` says what they tell. Beside traces of the same "
            "job they may lie; those are replayed"
        )
    if not answer.log.ranks:
        raise InputError(
            "the files hold no timed records of ranks, so there is nothing to replay: `paceline "
            "analyze` says what they tell"
        )
    for told in answer.report["data"]["sources"]:
        if told["format"] != answer.log.format:
            warn(
                f"paceline replay: what {told['format']} files tell is not sent, only the timeline"
            )
    return answer.log


def _report_on(log: EventLog, answer: Answer) -> Json:
    """Return the report on the files that are sent, without what other formats say."""
    formats = [told["format"] for told in answer.report["data"]["sources"]]
    if len(formats) < 2 or len(formats) != len(answer.parts):
        return answer.report
    return answer.parts[formats.index(log.format)]


def _bodies(log: EventLog, frames: ReplayFrames, speed: float | None) -> Iterator[bytes]:
    """Yield request bodies in the order of the job, at its pace when ``speed`` is given."""
    begun_ns = mono_ns()
    body = bytearray().join(frames.opening())
    for records in log.rounds(max_steps=STEPS_PER_ROUND if speed is None else 1):
        if speed is not None:
            due_ns = begun_ns + int(_reached_ns(log, records) / speed)
            time.sleep(max(0, due_ns - mono_ns()) / 1e9)
        for part in records:
            for frame in frames.of_records(part):
                if len(body) + len(frame) > MAX_BODY_BYTES:
                    yield bytes(body)
                    body.clear()
                body += frame
        if speed is not None and body:
            yield bytes(body)
            body.clear()
    for rank in log.ranks:
        for frame in frames.last_of(rank):
            if len(body) + len(frame) > MAX_BODY_BYTES:
                yield bytes(body)
                body.clear()
            body += frame
    yield bytes(body)


def _reached_ns(log: EventLog, records: list[Records]) -> int:
    """Return how far into the job these records lead, on the clock of the rank farthest."""
    return max(
        int(max(part.start_ns.max(), part.end_ns.max())) - log.extents[part.rank][0]
        for part in records
    )


def _duration_ns(log: EventLog) -> int:
    return max(last_ns - first_ns for first_ns, last_ns in log.extents.values())


def _post(client: Client, body: bytes, timeout_s: float) -> None:
    """Send one body; wait and send again while the collector is overloaded or its store is not up.

    Raises:
        TransportError: it refused frames, or is away for longer than ``timeout_s``.
    """
    deadline_ns = mono_ns() + int(timeout_s * 1e9)
    while True:
        try:
            rejected = client.post_frames(body)["rejected"]
            break
        except ProblemError as error:
            if error.status not in _RETRIED or mono_ns() > deadline_ns:
                raise
            time.sleep(error.retry_after_s or _PAUSE_S)
    if rejected:
        raise TransportError(f"the collector refused frames: {rejected[0]['reason']}")


def _tell(client: Client, frames: ReplayFrames, timeout_s: float) -> int:
    """Wait until the collector has analysed the attempt, then print where it is and its verdict."""
    name = quote(frames.job, safe="")
    deadline_ns = mono_ns() + int(timeout_s * 1e9)
    while True:
        attempts = client.get_json(f"/v1/jobs/{name}")["attempts"]
        mine = next((a for a in attempts if a["run_id"] == frames.run_id), None)
        if mine is not None and mine["state"] == "ended":
            break
        if mono_ns() > deadline_ns:
            raise TransportError(
                f"all frames were accepted, but {frames.job} is not analysed after {timeout_s:g} "
                "s; ask for its report later, or raise --timeout"
            )
        time.sleep(_POLL_S)
    ordinal = mine["attempt"]
    print(f"{frames.job}, attempt {ordinal}: {client.url}/#/jobs/{name}?attempt={ordinal}")
    print(headline(client.report(frames.job, ordinal)) + ".")
    return 0


def _stem(paths: Sequence[Path]) -> str:
    """Return what files are called together: of several the folder that they are in.

    What says only that one is a log is left out of its name.
    """
    places = [path.resolve() for path in paths]
    if len(places) > 1:
        return Path(os.path.commonpath([place.parent for place in places])).name
    name = places[0].name
    for suffix in (".gz", ".ndjson", ".jsonl", ".json", ".parquet", ".sqlite", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name
