"""Follows the event stream of a job in a thread of its own, and comes back where it broke off."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from paceline.errors import PacelineError, TransportError
from paceline_service.client import Client, Event, ProblemError
from paceline_service.export.step_table import StepTable, join, step_table
from paceline_service.top.moment import Moment, kept_steps

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 2.0
DETAIL_EVERY_S = 10.0
"""Nodes that come later, and when a silent job was last heard of."""
HISTORY_RANKS = 256
"""Of larger jobs earlier steps are not asked for: megabytes, for one row of the screen."""
STANDING_RANKS = 1024
"""Of larger jobs the ages of collectives are not asked for: the verdict names who is missing."""
STANDING = ("hang", "desync")
_PASSING = (429, 503)


class Feed:
    """Keeps a ``Moment`` up to date.

    Args:
        client: of the collector; only the thread of the feed uses it once it runs.
        job: whose events.
        attempt: None for the latest, and those that follow it.
        on_change: called in the feed's thread whenever there is something new to show.
    """

    def __init__(
        self, client: Client, job: str, attempt: int | None, on_change: Callable[[], None]
    ) -> None:
        self._client = client
        self._job = job
        self._attempt = attempt
        self._on_change = on_change
        self._lock = threading.Lock()
        self._moment = Moment(url=client.url, job=job)
        self._failure: PacelineError | None = None
        self._stopped = threading.Event()
        self._detail_s = 0.0
        self._thread = threading.Thread(target=self._run, name="top-feed", daemon=True)

    def start(self) -> None:
        """Begin to follow."""
        self._thread.start()

    def stop(self) -> None:
        """Follow no longer; an event that is awaited is not waited for."""
        self._stopped.set()

    def moment(self) -> Moment:
        """Return the newest state.

        Raises:
            PacelineError: the collector refuses for good.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            return self._moment

    def _change(self, **values: object) -> None:
        with self._lock:
            self._moment = dataclasses.replace(self._moment, **values)  # type: ignore[arg-type]
        self._on_change()

    def _run(self) -> None:
        last: str | None = None
        pause_s = FIRST_PAUSE_S
        while not self._stopped.is_set():
            try:
                for event in self._client.stream_events(
                    self._job, last_event_id=last, attempt=self._attempt
                ):
                    if self._stopped.is_set():
                        return
                    last, pause_s = event.id or last, FIRST_PAUSE_S
                    self._take(event)
                self._change(trouble="the collector ended the stream; asking again")
            except TransportError as error:
                if isinstance(error, ProblemError) and error.status not in _PASSING:
                    return self._fail(error)
                self._change(trouble=str(error))
            except Exception as error:
                return self._fail(TransportError(f"an event cannot be understood: {error!r}"))
            self._stopped.wait(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
        return None

    def _fail(self, error: PacelineError) -> None:
        with self._lock:
            self._failure = error
        self._on_change()

    def _take(self, event: Event) -> None:
        if event.name == "reload":
            self._change(table=None, trouble="")
        elif event.name == "steps":
            self._take_steps(event)
        elif event.name == "report":
            report = event.data
            attempt = int(report["job"]["attempt"])
            if (
                attempt != self._moment.attempt
                or time.monotonic() - self._detail_s > DETAIL_EVERY_S
            ):
                self._ask_detail(attempt)
            pending = pending_of(self._client, event.data)
            self._change(report=report, pending=pending, trouble="")

    def _take_steps(self, event: Event) -> None:
        table, held = step_table(event.data), self._moment.table
        attempt = int(event.data["attempt"])
        keep = kept_steps(len(table.ranks))
        if attempt != self._moment.attempt:
            self._ask_detail(attempt)
            held = self._earlier(attempt, table, keep)
        self._change(table=join(held, table, keep=keep), trouble="")

    def _earlier(self, attempt: int, table: StepTable, keep: int) -> StepTable | None:
        """Return steps before those of the first event: the row of step times then tells more."""
        if not len(table) or table.steps[0] <= 0 or len(table.ranks) > HISTORY_RANKS:
            return None
        asked = self._client.steps(self._job, attempt, to=table.steps[0] - 1, limit=keep)
        return step_table(asked) if asked["steps"] else None

    def _ask_detail(self, attempt: int) -> None:
        self._detail_s = time.monotonic()
        self._change(attempt=attempt, detail=self._client.job(self._job, attempt))


def pending_of(client: Client, report: Mapping[str, Any]) -> dict[int, float | None]:
    """Return for how long each rank of a job that stands still is in a collective.

    None is a rank that is in none: the others wait for it. Empty where the job goes on.
    """
    job = report["job"]
    if report["verdict"] not in STANDING or job["world_size"] > STANDING_RANKS:
        return {}
    rows = client.iter_ranks(job["name"], job["attempt"])
    return {row["rank"]: row["pending_s"] for row in rows}
