"""The routes of the collector as methods."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, cast
from urllib.parse import quote

from paceline.errors import TransportError
from paceline_service.client import types
from paceline_service.client.connection import FRAMES_PATH, LONGEST_PAUSE_S, Connection
from paceline_service.client.events import Event, parse_events
from paceline_service.client.problem import ProblemError


class Client(Connection):
    """Every route of the collector, with typed answers.

    Methods raise ``ProblemError`` where the collector refuses and ``TransportError`` where it
    cannot be reached. What is named ``iter_...`` asks for page after page as it goes.
    """

    def post_frames(self, body: bytes) -> types.FramesAnswer:
        """Send frames back to back; when this returns, the accepted ones are durable.

        Raises:
            ProblemError: the collector refused; on 429 and 503 keep the frames, wait
                ``retry_after_s``, and send them again.
            TransportError: it cannot be reached; keep the frames.
        """
        headers = {"Content-Type": types.FRAMES_CONTENT_TYPE}
        return cast(types.FramesAnswer, self._request_json("POST", FRAMES_PATH, body, headers))

    def jobs(self, **chosen: object) -> list[types.JobRow]:
        """Return a row per job, the newest first; see ``iter_jobs``."""
        return list(self.iter_jobs(**chosen))

    def iter_jobs(self, **chosen: object) -> Iterator[types.JobRow]:
        """Yield a row per job, the newest first: ``state``, ``verdict``, ``prefix``, ``since``."""
        yield from self._pages("/v1/jobs", "jobs", chosen)

    def job(self, job: str, attempt: int | None = None) -> types.JobDetail:
        """Return one attempt with its groups, nodes and the other attempts."""
        return cast(types.JobDetail, self.get_json(_of_job(job), attempt=attempt))

    def report(self, job: str, attempt: int | None = None) -> types.Report:
        """Return the report of a job."""
        return cast(types.Report, self.get_json(_of_job(job, "report"), attempt=attempt))

    def iter_ranks(
        self, job: str, attempt: int | None = None, *, ranks: str | None = None
    ) -> Iterator[types.RankRow]:
        """Yield the totals and the state of ranks, in their order."""
        yield from self._pages(_of_job(job, "ranks"), "ranks", {"attempt": attempt, "ranks": ranks})

    def steps(self, job: str, attempt: int | None = None, **chosen: object) -> types.Steps:
        """Return steps as columns: ``from_``, ``to``, ``ranks``, ``limit``, ``phases``."""
        return cast(types.Steps, self.get_json(_of_job(job, "steps"), attempt=attempt, **chosen))

    def iter_steps(
        self, job: str, attempt: int | None = None, **chosen: object
    ) -> Iterator[types.Steps]:
        """Yield pages of ``steps``: to later ones with ``from_``, else to earlier ones."""
        cursor: str | None = None
        while True:
            page = self.steps(job, attempt, **{**chosen, "cursor": cursor})
            yield page
            cursor = page["next"]
            if cursor is None:
                return

    def what_if(
        self, job: str, without: Sequence[str] = (), attempt: int | None = None
    ) -> types.WhatIf:
        """Return what the job would gain without ``rank:3``, ``rank:0-3``, ``node:NAME``."""
        query = {"attempt": attempt, "without": list(without) or None}
        return cast(types.WhatIf, self.get_json(_of_job(job, "what-if"), **query))

    def expected(
        self, job: str, attempt: int | None = None, **work: float | None
    ) -> types.Expected:
        """Return the step that healthy ranks would take, and the fits behind it.

        Args:
            job: its name.
            attempt: of it; None: the latest.
            work: of a step: ``flops_per_step``, or ``parameters`` and ``tokens_per_step``.
        """
        path = _of_job(job, "expected")
        return cast(types.Expected, self.get_json(path, attempt=attempt, **work))

    def timeline(self, job: str, attempt: int | None = None, **chosen: object) -> dict[str, Any]:
        """Return steps as a Chrome trace: ``from_``, ``to``, ``ranks``, ``limit``."""
        trace: dict[str, Any] = self.get_json(_of_job(job, "timeline"), attempt=attempt, **chosen)
        return trace

    def event_log(self, job: str, attempt: int | None = None) -> Iterator[bytes]:
        """Yield the event log of a job in chunks."""
        return self.stream(_of_job(job, "event-log"), attempt=attempt)

    def settings(self, job: str, attempt: int | None = None) -> types.JobSettingsView:
        """Return what is recorded of a job, since which step, and which ranks follow."""
        path = _of_job(job, "settings")
        return cast(types.JobSettingsView, self.get_json(path, attempt=attempt))

    def change_settings(self, job: str, change: types.SettingsChange) -> types.JobSettingsView:
        """Change what is recorded of a job."""
        return cast(types.JobSettingsView, self.put_json(_of_job(job, "settings"), change))

    def iter_incidents(
        self, job: str | None = None, attempt: int | None = None, **chosen: object
    ) -> Iterator[types.IncidentRow]:
        """Yield incidents, the newest first: ``state``, ``kind``, ``since``.

        Args:
            job: of its latest attempt, or of ``attempt``; None: of all jobs.
            attempt: of that job.
            chosen: which of them.
        """
        path = "/v1/incidents" if job is None else _of_job(job, "incidents")
        yield from self._pages(path, "incidents", {"attempt": attempt, **chosen})

    def incident(self, incident: int) -> types.IncidentDetail:
        """Return one incident with the history of its acknowledgements."""
        return cast(types.IncidentDetail, self.get_json(f"/v1/incidents/{incident}"))

    def acknowledge(self, incident: int, *, who: str = "", note: str = "") -> types.IncidentRow:
        """Say that somebody knows of an incident."""
        said = {"who": who, "note": note}
        return cast(types.IncidentRow, self.post_json(f"/v1/incidents/{incident}/ack", said))

    def take_back(self, incident: int) -> types.IncidentRow:
        """Take the acknowledgements of an incident back."""
        return cast(types.IncidentRow, self.delete_json(f"/v1/incidents/{incident}/ack"))

    def silence_incident(
        self, incident: int, for_s: float, *, who: str = "", note: str = ""
    ) -> types.SilenceView:
        """Silence the job, kind and ranks of an incident."""
        wanted = {"for_s": for_s, "who": who, "note": note}
        return cast(types.SilenceView, self.post_json(f"/v1/incidents/{incident}/silence", wanted))

    def unsilence_incident(self, incident: int) -> list[types.SilenceView]:
        """End the silences that were made for an incident; return them."""
        ended = self.delete_json(f"/v1/incidents/{incident}/silence")
        return cast("list[types.SilenceView]", ended["silences"])

    def silence(self, for_s: float, **wanted: str) -> types.SilenceView:
        """Silence what lies within ``job``, ``kind``, ``ranks`` and ``node``."""
        return cast(types.SilenceView, self.post_json("/v1/silences", {"for_s": for_s, **wanted}))

    def end_silence(self, silence: int) -> types.SilenceView:
        """End a silence now."""
        return cast(types.SilenceView, self.delete_json(f"/v1/silences/{silence}"))

    def iter_silences(self, active: bool | None = None) -> Iterator[types.SilenceView]:
        """Yield silences, the newest first."""
        yield from self._pages("/v1/silences", "silences", {"active": active})

    def iter_offenders(self, days: int = 30) -> Iterator[types.OffenderRow]:
        """Yield nodes and GPUs that incidents named, first who was named in the most jobs."""
        yield from self._pages("/v1/offenders", "offenders", {"days": days})

    def channels(self) -> list[types.ChannelRow]:
        """Return the channels that messages about incidents go to."""
        return cast("list[types.ChannelRow]", self.get_json("/v1/notifications")["channels"])

    def test_channel(self, channel: str) -> types.TestAnswer:
        """Send a test message to a channel; return what became of it."""
        path = f"/v1/notifications/{quote(channel, safe='')}/test"
        return cast(types.TestAnswer, self.post_json(path, {}))

    def notifications(self, incident: int) -> types.IncidentNotifications:
        """Return who was told of an incident, what could be done to its nodes, and what was."""
        path = f"/v1/incidents/{incident}/notifications"
        return cast(types.IncidentNotifications, self.get_json(path))

    def iter_tokens(self) -> Iterator[types.TokenView]:
        """Yield tokens, in the order in which they were made."""
        yield from self._pages("/v1/tokens", "tokens", {}, cursor="after")

    def make_token(self, scopes: Sequence[str], **wanted: object) -> types.MadeToken:
        """Make a token: ``name``, ``job_prefix``, ``expires_in_s`` and limits of its own."""
        content = {"scopes": list(scopes), **wanted}
        return cast(types.MadeToken, self.post_json("/v1/tokens", content))

    def revoke_token(self, token: int) -> types.TokenView:
        """Revoke a token by its number."""
        return cast(types.TokenView, self.delete_json(f"/v1/tokens/{token}"))

    def iter_audit(self, action: str | None = None) -> Iterator[types.AuditView]:
        """Yield what administrators did, the newest first."""
        yield from self._pages("/v1/audit", "entries", {"action": action}, cursor="before")

    def metrics(self) -> str:
        """Return the metrics in Prometheus' text format."""
        return b"".join(self.stream("/metrics")).decode()

    def ready(self) -> bool:
        """Whether frames are stored and analysed at present."""
        try:
            return bool(self.get_json("/readyz")["ready"])
        except ProblemError as error:
            if error.status != 503:
                raise
            return False

    def stream_events(
        self,
        job: str,
        *,
        last_event_id: str | None = None,
        attempt: int | None = None,
        ranks: str | None = None,
    ) -> Iterator[Event]:
        """Yield the events of a job until the collector or the connection ends."""
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        path = _of_job(job, "events")
        yield from parse_events(self.lines(path, headers, attempt=attempt, ranks=ranks))

    def follow_events(
        self,
        job: str,
        *,
        attempt: int | None = None,
        ranks: str | None = None,
        patience_s: float = 60.0,
    ) -> Iterator[Event]:
        """Yield the events of a job, and come back where the connection broke off.

        It goes on where it was. After an event ``reload`` some steps may be missing.

        Raises:
            ProblemError: the job is not known, or the token may not read it.
            TransportError: the collector was away for longer than ``patience_s``.
        """
        last: str | None = None
        heard_s, pause_s = time.monotonic(), 0.5
        while True:
            try:
                for event in self.stream_events(
                    job, last_event_id=last, attempt=attempt, ranks=ranks
                ):
                    last = event.id or last
                    heard_s, pause_s = time.monotonic(), 0.5
                    yield event
            except TransportError as error:
                for_good = isinstance(error, ProblemError) and error.status not in (429, 503)
                if for_good or time.monotonic() - heard_s > patience_s:
                    raise
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _pages(
        self, path: str, rows: str, query: dict[str, Any], *, cursor: str = "cursor"
    ) -> Iterator[Any]:
        """Yield the rows of page after page; ``cursor`` is what the list calls its own."""
        following = "next" if cursor == "cursor" else f"next_{cursor}"
        at: object = None
        while True:
            page = self.get_json(path, **query, **{cursor: at})
            yield from page[rows]
            at = page[following]
            if at is None:
                return


def _of_job(job: str, what: str = "") -> str:
    return f"/v1/jobs/{quote(job, safe='')}" + (f"/{what}" if what else "")
