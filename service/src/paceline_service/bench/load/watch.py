"""Watches the collector under a load: CPU, memory, steps judged, and when a fault is named."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import PacelineError
from paceline_service.bench.load.shape import LoadShape
from paceline_service.bench.machine import family_cpu_s, family_pss_kib
from paceline_service.client import Client

POLL_S = 0.25
MEMORY_S = 2.0
REQUEST_S = 30.0


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was seen, with times on the monotonic clock of this machine."""

    judged: list[tuple[float, int]] = field(default_factory=list)
    """When so many steps were judged."""
    rss_mib: list[tuple[float, float]] = field(default_factory=list)
    named_after_step: int = -1
    """How many steps had been judged when the faulty rank was first the one that is named."""
    misses: int = 0
    """Questions that were not answered in time."""


class Watch:
    """Asks the collector for its row of the job, in a thread of its own.

    Args:
        url: of the collector.
        token: for it.
        shape: the load.
        pid: of the collector, 0 where it is not known.
    """

    def __init__(self, url: str, token: str, shape: LoadShape, pid: int) -> None:
        self._client = Client(url, token, timeout_s=REQUEST_S)
        self._shape = shape
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load-watch", daemon=True)
        self.seen = Seen()

    def check(self) -> None:
        """Raise TransportError where nobody answers, or where the token does not do."""
        self._client.jobs()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def stop(self) -> None:
        """Stop asking."""
        self._stop.set()
        self._thread.join()

    def wait_until_judged(self, steps: int, timeout_s: float) -> bool:
        """Return whether so many steps were judged in time."""
        deadline_s = time.monotonic() + timeout_s
        while time.monotonic() < deadline_s and self._thread.is_alive():
            if self.seen.judged and self.seen.judged[-1][1] >= steps:
                return True
            time.sleep(POLL_S)
        return False

    def report(self) -> dict[str, Any]:
        """Return the report as it stands."""
        found: dict[str, Any] = self._client.get_json(f"/v1/jobs/{self._shape.job}/report")
        return found

    def _run(self) -> None:
        memory_at_s = 0.0
        while not self._stop.wait(POLL_S):
            now_s = time.monotonic()
            if self._pid and now_s >= memory_at_s:
                memory_at_s = now_s + MEMORY_S
                try:
                    self.seen.rss_mib.append((now_s, family_pss_kib(self._pid) / 1024))
                except OSError:
                    return  # the collector has ended
            try:
                self._look()
            except PacelineError:
                self.seen.misses += 1

    def _look(self) -> None:
        rows = [row for row in self._client.jobs() if row["job"] == self._shape.job]
        if not rows:
            return
        row, seen = rows[0], self.seen
        now_s = time.monotonic()
        steps = int(row["steps"] or 0)
        if not seen.judged or steps > seen.judged[-1][1]:
            seen.judged.append((now_s, steps))
        fault = self._shape.fault
        suspected = row["verdict"] not in ("healthy", "insufficient_evidence")
        if fault is None or not suspected or seen.named_after_step >= 0:
            return
        if names(self.report(), fault.rank):
            seen.named_after_step = steps


def names(report: dict[str, Any], rank: int) -> bool:
    """Whether the report names that rank alone as a straggler."""
    return any(
        finding["kind"] == "straggler" and finding["ranks"] == [rank]
        for finding in report["findings"]
    )


def lags_s(shape: LoadShape, began_s: float, judged: Sequence[tuple[float, int]]) -> list[float]:
    """Return for every judged step how long after its last release it was seen to be judged.

    The last step is not among them: nothing follows it that would complete it but the end.
    """
    lags: list[float] = []
    for seen_s, steps in judged:
        for step in range(len(lags), min(steps, shape.steps - 1)):
            lags.append(seen_s - (began_s + (step + 1) * shape.step_s))
    return lags


def cpu_of(pid: int) -> float:
    """Return the CPU seconds of the collector so far, 0 where its pid is not known.

    With those of the process in which it has large jobs analysed, and of its copies.
    """
    return family_cpu_s(pid) if pid else 0.0
