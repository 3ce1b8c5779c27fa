"""A GPU that is not there: streams that work in order, events, and a clock of its own.

It has the part of CUDA's event API that ``paceline.hooks.device_api`` names, with CUDA's
manners: times between events are 32-bit floats of milliseconds, an event that is not complete
has no time, a thread that asks while another captures a graph breaks the capture, an error stays.
"""

from __future__ import annotations

import struct
import threading
from dataclasses import dataclass, field

MS = 1_000_000
NEVER = 1 << 62
RECORD_LAG_NS = 4_000
"""From the host's call to the stream, when the stream has nothing to do."""


class HostClock:
    """Time of the host, moved by hand."""

    def __init__(self, now_ns: int = 1_000_000 * MS) -> None:
        self.now_ns = now_ns

    def __call__(self) -> int:
        return self.now_ns

    def advance(self, ns: int) -> None:
        self.now_ns += ns


@dataclass(eq=False)
class Event:
    """``at_ns`` is the device's time; ``NEVER`` behind work that hangs; None: never recorded."""

    at_ns: int | None = None


@dataclass(eq=False)
class Stream:
    handle: int
    free_ns: int = 0
    """When everything that was put on it is done, in the device's time."""
    behind: list[Event] = field(default_factory=list)
    """Events behind work that hangs."""
    capturing: bool = False


class CaptureBrokenError(Exception):
    """What this thread did would have invalidated the graph that another one captures."""


class Gpu:
    """One device whose clock began elsewhere and runs ``drift_ppm`` faster than the host's."""

    def __init__(self, host: HostClock, *, drift_ppm: float = 0.0) -> None:
        self.host = host
        self._began_ns = host.now_ns
        self._drift = drift_ppm / 1e6
        self._handles = iter(range(7, 1_000_000))
        self.current = self.stream()
        self.aside = self.stream()
        self.error = ""
        self.can_enter = True
        self.made = self.recorded = self.queried = self.recorded_aside = 0
        self._entered: set[int] = set()

    # What a job does with it.

    def stream(self) -> Stream:
        return Stream(next(self._handles))

    def now_ns(self) -> int:
        """The device's time now."""
        return 5_000 * MS + round((self.host.now_ns - self._began_ns) * (1 + self._drift))

    def host_time(self, device_ns: int) -> int:
        """The true time on the host's clock; no timer can know it."""
        return self._began_ns + round((device_ns - 5_000 * MS) / (1 + self._drift))

    def work(self, ns: int, stream: Stream | None = None) -> tuple[int, int]:
        """Put a kernel on a stream; returns when it begins and ends, on the device."""
        stream = stream or self.current
        begin_ns = max(stream.free_ns, self.now_ns() + RECORD_LAG_NS)
        stream.free_ns = min(begin_ns + ns, NEVER) if begin_ns < NEVER else NEVER
        return begin_ns, stream.free_ns

    def wait_for(self, other: Stream, stream: Stream | None = None) -> None:
        """Let a stream wait for what ``other`` has been given."""
        stream = stream or self.current
        stream.free_ns = max(stream.free_ns, other.free_ns)

    def hang(self, stream: Stream | None = None) -> None:
        (stream or self.current).free_ns = NEVER

    def recover(self, stream: Stream) -> None:
        """What hung ends now."""
        stream.free_ns = self.now_ns()
        for event in stream.behind:
            event.at_ns = stream.free_ns
        stream.behind.clear()

    # The device API.

    def is_capturing(self) -> bool:
        self._check()
        return self.current.capturing

    def new_event(self) -> Event:
        self._check()
        self.made += 1
        return Event()

    def record(self, event: Event, device: int) -> int:
        self._check()
        self.recorded += 1
        assert not self.current.capturing, "an event became part of a graph"
        self._record(event, self.current)
        return self.current.handle

    def record_aside(self, event: Event, device: int) -> None:
        self._check()
        self.recorded_aside += 1
        self._record(event, self.aside)

    def query(self, event: Event) -> bool:
        self._check()
        self.queried += 1
        if self.current.capturing and threading.get_ident() not in self._entered:
            raise CaptureBrokenError
        self.host.advance(300)  # a query takes the host a moment
        return event.at_ns is None or event.at_ns <= self.now_ns()

    def elapsed_ms(self, start: Event, end: Event) -> float:
        self._check()
        for event in (start, end):
            if event.at_ns is None or event.at_ns > self.now_ns():
                raise RuntimeError("CUDA error: device not ready")
        assert start.at_ns is not None
        assert end.at_ns is not None
        exact_ms = (end.at_ns - start.at_ns) / MS
        return float(struct.unpack("f", struct.pack("f", exact_ms))[0])

    def enter_polling_thread(self, device: int) -> bool:
        if self.can_enter:
            self._entered.add(threading.get_ident())
        return self.can_enter

    def facts(self, device: int) -> dict[str, str]:
        return {"gpu_uuid": f"GPU-{device}", "gpu_name": "Simulated", "cuda": "0.0"}

    def _record(self, event: Event, stream: Stream) -> None:
        event.at_ns = max(stream.free_ns, self.now_ns() + RECORD_LAG_NS)
        if stream.free_ns >= NEVER:
            stream.behind.append(event)

    def _check(self) -> None:
        if self.error:
            raise RuntimeError(self.error)
