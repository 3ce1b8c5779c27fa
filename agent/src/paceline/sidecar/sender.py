"""The thread that moves frames from the spool to the collector."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence

from paceline.errors import WireError
from paceline.sidecar.collector import Answer, Collector, Outcome
from paceline.sidecar.segment import Entry
from paceline.sidecar.spool import SendBatch, Spool
from paceline.wire.bundle_codec import decode_any
from paceline.wire.settings import LaunchSettings

_log = logging.getLogger("paceline.sidecar")
MAX_BODY_BYTES = 4 << 20
MIN_BODY_BYTES = 64 << 10
"""A link or a collector that is too slow gets smaller bodies, down to this."""
BACKOFF_FIRST_S = 0.5
BACKOFF_LAST_S = 30.0
MISCONFIGURED_S = 30.0
_HURRY_S = 0.5
_REFUSED_REASON = "collector_refused"


def backoff_s(failures: int, random_ratio: float) -> float:
    """Return the pause after so many failures in a row: doubling, capped, half of it random.

    Args:
        failures: 1 after the first.
        random_ratio: within 0 to 1; spreads the sidecars of a cluster.
    """
    whole_s = min(BACKOFF_LAST_S, BACKOFF_FIRST_S * float(1 << min(failures - 1, 16)))
    return whole_s * (0.5 + random_ratio / 2)


class Sender:
    """Sends what is in ``spool`` until stopped; nothing it meets ends it.

    Args:
        spool: what is to be sent.
        collector: where to.
        on_settings: takes the settings that come with an answer; called in the thread.
    """

    def __init__(
        self,
        spool: Spool,
        collector: Collector,
        on_settings: Callable[[Sequence[LaunchSettings]], None] = lambda told: None,
    ) -> None:
        self._spool = spool
        self._on_settings = on_settings
        self._collector = collector
        self._random = random.Random()
        self._wake = threading.Event()
        self._hurry = threading.Event()
        self._stop = threading.Event()
        self._failures = 0
        self._failing_since_s = 0.0
        self._told = ""
        self._aside_due_s = 0.0
        self._max_body_bytes = self._accepted_bytes = MAX_BODY_BYTES
        self._thread = threading.Thread(target=self._run, name="paceline-sender", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._collector.token_in_clear:
            _log.warning("the token goes to %s unencrypted: use https", self._collector.name)
        self._thread.start()

    def wake(self) -> None:
        """Say that there is something to send."""
        self._wake.set()

    def hurry(self) -> None:
        """End the present pause and keep later ones short: the sidecar wants to end."""
        self._hurry.set()
        self._aside_due_s = 0.0
        self._wake.set()

    def watch(self) -> None:
        """Cut off an answer that takes too long; to be called now and then."""
        self._collector.cut_off_late_answer()

    def stop(self, timeout_s: float) -> None:
        """End the thread; a POST that is under way may take until its time-out."""
        self._stop.set()
        self.hurry()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                batch = self._next_batch()
                if batch is None:
                    self._wake.wait(1.0)
                    self._wake.clear()
                    continue
                self._deliver(batch)
            except Exception:
                _log.exception("the sender met an error of its own; it goes on")
                self._spool.release()
                self._pause(BACKOFF_LAST_S)
        self._collector.close()

    def _next_batch(self) -> SendBatch | None:
        """Return what was set aside, when it is time, else what is next."""
        if self._spool.any_aside and time.monotonic() >= self._aside_due_s:
            self._aside_due_s = time.monotonic() + self._patience_s
            self._spool.set_aside_due()
        batch = self._spool.next_aside(self._max_body_bytes)
        return batch or self._spool.next_batch(self._max_body_bytes)

    def _deliver(self, batch: SendBatch) -> None:
        answer = self._collector.post(batch.body)
        if answer.outcome is Outcome.TOO_LARGE and len(batch.frames) > 1:
            self._spool.release()
            self._max_body_bytes = self._accepted_bytes = max(len(batch.body) // 2, 1)
            return
        if answer.outcome is Outcome.FORBIDDEN:
            self._set_aside(batch, batch.frames, answer.text)
            self._spool.acknowledge(batch, [], batch.frames)
            return
        if answer.outcome in (Outcome.STORED, Outcome.REFUSED, Outcome.TOO_LARGE):
            refused, forbidden = _refused(batch, answer)
            if forbidden:
                self._set_aside(batch, forbidden, next(iter(answer.rejected.values()), ""))
            elif batch.of:
                _log.warning(
                    "%s takes frames of %s again", self._collector.name, _jobs(batch.frames)
                )
            if refused:
                _log.warning(
                    "the collector refused %d of %d frames (%s): dropped",
                    len(refused),
                    len(batch.frames),
                    answer.text or next(iter(answer.rejected.values()), ""),
                )
            self._spool.acknowledge(batch, refused, forbidden)
            self._on_settings(answer.settings)
            self._max_body_bytes = min(2 * self._max_body_bytes, self._accepted_bytes)
            self._tell_recovery()
            return
        self._spool.release()
        self._on_settings(answer.settings)
        if answer.timed_out:
            least = min(MIN_BODY_BYTES, self._accepted_bytes)
            self._max_body_bytes = max(min(len(batch.body), self._max_body_bytes) // 2, least)
        self._failures += 1
        self._tell_failure(answer)
        if answer.outcome is Outcome.MISCONFIGURED:
            self._pause(MISCONFIGURED_S)
        else:
            pause_s = backoff_s(self._failures, self._random.random())
            self._pause(max(pause_s, answer.retry_after_s))

    def _set_aside(self, batch: SendBatch, forbidden: Sequence[Entry], why: str) -> None:
        if not batch.of:
            _log.warning(
                "%s forbids frames of %s (%s): %d are kept in the spool and tried again every "
                "%.0f s, others go on; use a token that covers them",
                self._collector.name,
                _jobs(forbidden),
                why,
                len(forbidden),
                MISCONFIGURED_S,
            )
            self._aside_due_s = max(self._aside_due_s, time.monotonic() + self._patience_s)

    @property
    def _patience_s(self) -> float:
        return _HURRY_S if self._hurry.is_set() else MISCONFIGURED_S

    def _pause(self, pause_s: float) -> None:
        if not self._hurry.is_set():
            self._hurry.wait(pause_s)
        elif pause_s:
            self._stop.wait(min(pause_s, _HURRY_S))

    def _tell_failure(self, answer: Answer) -> None:
        if self._failures == 1:
            self._failing_since_s = time.monotonic()
        if answer.text != self._told and (self._failures == 1 or answer.outcome != Outcome.LATER):
            self._told = answer.text
            _log.warning("%s: %s; frames are kept in the spool", self._collector.name, answer.text)

    def _tell_recovery(self) -> None:
        if self._failures:
            away_s = time.monotonic() - self._failing_since_s
            _log.warning("%s takes frames again after %.1f s", self._collector.name, away_s)
        self._failures = 0
        self._told = ""


def _refused(batch: SendBatch, answer: Answer) -> tuple[list[tuple[Entry, str]], list[Entry]]:
    """Return the frames that are never taken, and those that the token does not cover."""
    if answer.outcome is not Outcome.STORED:
        return [(entry, _REFUSED_REASON) for entry in batch.frames], []
    refused, forbidden = [], []
    offset = 0
    for entry in batch.frames:
        if offset in answer.forbidden:
            forbidden.append(entry)
        elif offset in answer.rejected:
            refused.append((entry, _REFUSED_REASON))
        offset += len(entry.body)
    return refused, forbidden


def _jobs(frames: Sequence[Entry]) -> str:
    names = set()
    for entry in {entry.incarnation: entry for entry in frames}.values():
        try:
            names.add(decode_any(entry.body).job)
        except WireError:
            names.add("?")
    return ", ".join(sorted(names)[:8])
