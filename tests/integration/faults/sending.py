"""Senders that keep what was not acknowledged, and what must be true of what was."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from paceline.errors import TransportError
from paceline.wire.codec import split_frames
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import TOKEN, CollectorProcess


class Senders:
    """Threads that post bodies one after another until all are acknowledged."""

    def __init__(self, url: Callable[[], str], work: Iterable[Iterable[bytes]]) -> None:
        self.acknowledged: list[bytes] = []
        self.problems: list[ProblemError] = []
        self._url = url
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(deque(bodies),), daemon=True)
            for bodies in work
        ]

    def __enter__(self) -> Senders:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self.join(20)

    def _send(self, waiting: deque[bytes]) -> None:
        while waiting and not self._stop.is_set():
            try:
                with Client(self._url(), TOKEN, timeout_s=20) as client:
                    while waiting and not self._stop.is_set():
                        client.post_frames(waiting[0])
                        with self._lock:
                            self.acknowledged.append(waiting.popleft())
            except ProblemError as error:
                self.problems.append(error)
                self._stop.wait(0.1)
            except TransportError:
                self._stop.wait(0.05)

    def join(self, timeout_s: float) -> None:
        """Wait until everything is acknowledged."""
        for thread in self._threads:
            thread.join(timeout_s)

    @property
    def done(self) -> bool:
        """Whether everything is acknowledged."""
        return not any(thread.is_alive() for thread in self._threads)

    def promised(self) -> set[bytes]:
        """Return the frames that were acknowledged so far."""
        with self._lock:
            bodies = list(self.acknowledged)
        return {bytes(part) for body in bodies for part in split_frames(body)}  # type: ignore[arg-type]


def assert_stored_once(collector: CollectorProcess, promised: set[bytes]) -> int:
    """Assert that every promised frame is in the database, and none twice; return how many are."""
    # One query, so one snapshot: senders may go on while this is asked.
    rows = collector.stored()
    assert promised <= {body for body, _ in rows}
    assert len({key for _, key in rows}) == len(rows)
    return len(rows)
