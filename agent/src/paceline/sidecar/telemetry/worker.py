"""A thread that reads one source at a steady pace, and what it gave until it is taken."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from paceline.clock import mono_ns
from paceline.sidecar.telemetry.reading import Reading

_log = logging.getLogger("paceline.sidecar")
MAX_WAITING = 4096
"""Readings that wait to be taken; beyond it the oldest go, counted."""
_NS = 1_000_000_000


class Worker:
    """Calls ``read(now_ns)`` every ``interval_s``; an interval of 0 is a pause.

    A call may block for as long as it likes: nobody waits for it. All workers read at multiples of
    the interval, so that values of GPUs and host are of about the same moment.
    """

    def __init__(self, name: str, read: Callable[[int], list[Reading]], interval_s: float) -> None:
        self.lost = 0
        """Readings that nobody took in time."""
        self.failures = 0
        self.began_ns = 0
        """When the call in progress began; 0: none is."""
        self._name = name
        self._read = read
        self._interval_s = interval_s
        self._readings: deque[Reading] = deque()
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"paceline-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def set_interval_s(self, interval_s: float) -> None:
        """Go on at another pace, at once."""
        if interval_s != self._interval_s:
            self._interval_s = interval_s
            self._changed.set()

    def take(self) -> list[Reading]:
        """Return what was read since the last call."""
        with self._lock:
            taken = list(self._readings)
            self._readings.clear()
        return taken

    def stop(self, timeout_s: float = 0.2) -> bool:
        """Tell the thread to end; return whether it did: one in a blocked call cannot."""
        self._stopping = True
        self._changed.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping:
            if self._interval_s > 0:
                self._read_once()
            self._changed.wait(self._pause_s())
            self._changed.clear()

    def _read_once(self) -> None:
        began_ns = self.began_ns = mono_ns()
        try:
            readings = self._read(began_ns)
        except Exception as error:  # a source that fails is no reason to end the sidecar
            readings = []
            self.failures += 1
            if self.failures == 1:
                _log.warning("telemetry: reading %s failed: %r", self._name, error)
        finally:
            self.began_ns = 0
        with self._lock:
            self._readings += readings
            while len(self._readings) > MAX_WAITING:
                self._readings.popleft()
                self.lost += 1

    def _pause_s(self) -> float | None:
        interval_s = self._interval_s
        if interval_s <= 0:
            return None
        interval_ns = int(interval_s * _NS)
        now_ns = time.monotonic_ns()
        return (interval_ns - now_ns % interval_ns) / _NS
