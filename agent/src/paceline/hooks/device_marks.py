"""Events on the job's streams: recorded by whoever issues work, read by the poller.

Recording takes no lock and never waits. Events come from a bounded pool and go back to it
once they are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from paceline.hooks.device_api import DeviceApi
from paceline.hooks.device_clock import DeviceClock

MAX_EVENTS = 2048
"""Per process: 1,000 collectives a second on a host that runs a second ahead of its device."""
REFERENCE_NS = 500_000_000
"""How old a reference gets while it is used: clocks drift apart by up to 50 us in that time."""
OLD_NS = 4_000_000_000
"""When an event of the job becomes the reference, because none aside was to be had."""
MAX_STREAMS = 256
PROBE_QUERIES = 64
"""How often an event on an idle stream is asked for; it takes microseconds to come."""
_NS_PER_MS = 1_000_000


class Mark:
    """One place in a stream, and when the device came to it."""

    __slots__ = ("axis_ns", "before_ns", "device", "event", "host_ns", "stream")

    def __init__(self, event: Any, device: int, stream: int, before_ns: int) -> None:
        self.event = event
        self.device = device
        self.stream = stream
        self.before_ns = before_ns
        """The host's time before it was recorded."""
        self.host_ns = 0
        """When the device came to it, on the host's clock; 0: not yet seen."""
        self.axis_ns = 0
        """The same on the device's own axis, for differences."""


class _Device:
    __slots__ = ("clock", "probe", "probed_ns", "reference")

    def __init__(self) -> None:
        self.clock = DeviceClock()
        self.reference: Any = None
        self.probed_ns = 0
        self.probe: tuple[Any, int] | None = None
        """An event on the stream aside that was not complete when it was asked for."""


class Marks:
    """The events of all devices of a process.

    Args:
        api: the devices.
        now_ns: the host's monotonic clock.
        probes: whether an event may be recorded on a stream aside now and then, to relate the
            clocks. Without, the job's own events must do: they bound less tightly.
    """

    def __init__(self, api: DeviceApi, now_ns: Callable[[], int], *, probes: bool) -> None:
        self._api = api
        self._now_ns = now_ns
        self._probes = probes
        self._old_ns = OLD_NS if probes else REFERENCE_NS
        self._free: dict[int, list[Any]] = {}
        self._made = 0
        self._new: deque[Mark] = deque()
        self._streams: dict[tuple[int, int], deque[Mark]] = {}
        self._came_to_ns: dict[tuple[int, int], int] = {}
        self._devices: dict[int, _Device] = {}
        self.exhausted = 0
        """How often the pool was empty."""
        self.reached_ns = 0
        """The latest ``before_ns`` of a mark that the device has come to."""

    def __len__(self) -> int:
        """Return how many marks the device has not been seen to reach."""
        return len(self._new) + sum(map(len, self._streams.values()))

    def record(self, device: int) -> Mark | None:
        """Mark the current stream of ``device``; None when the pool is empty."""
        event = self._take(device)
        if event is None:
            self.exhausted += 1
            return None
        before_ns = self._now_ns()
        mark = Mark(event, device, self._api.record(event, device), before_ns)
        self._new.append(mark)
        return mark

    def poll(self) -> None:
        """Read every mark that the devices have come to."""
        while self._new:
            mark = self._new.popleft()
            self._streams.setdefault((mark.device, mark.stream), deque()).append(mark)
        for device in {key[0] for key in self._streams}:
            self._refresh(device)
        for key, marks in list(self._streams.items()):
            # A stream works in order: behind one that is not complete none is.
            while marks and self._read(marks[0]):
                marks.popleft()
            if not marks:
                del self._streams[key]

    def error_ns(self, device: int) -> int:
        """Return how far mapped times of ``device`` can be from the true ones."""
        return self._devices[device].clock.error_ns if device in self._devices else 0

    def _take(self, device: int) -> Any:
        # An event belongs to the device that first recorded it.
        free = self._free.get(device)
        if free is None:
            free = self._free.setdefault(device, [])
        try:
            return free.pop()
        except IndexError:
            if self._made >= MAX_EVENTS:
                return None
            self._made += 1
            return self._api.new_event()

    def _give_back(self, device: int, event: Any) -> None:
        self._free.setdefault(device, []).append(event)

    def _read(self, mark: Mark) -> bool:
        if not self._api.query(mark.event):
            return False
        seen_ns = self._now_ns()
        state = self._devices[mark.device]
        if state.reference is None or seen_ns - state.clock.base_ns > self._old_ns:
            self._rebase(mark.device, state, mark.event, mark.before_ns, seen_ns)
            elapsed_ns = 0
        else:
            elapsed_ns = self._elapsed_ns(state.reference, mark.event)
            state.clock.bound(elapsed_ns, mark.before_ns, seen_ns)
            self._give_back(mark.device, mark.event)
        mark.event = None
        mark.axis_ns = state.clock.axis_ns + elapsed_ns
        key = (mark.device, mark.stream)
        # The mapping may move by microseconds; what a stream did in order stays in order.
        mark.host_ns = max(
            state.clock.host_ns(elapsed_ns), mark.before_ns, self._came_to_ns.get(key, 0)
        )
        if len(self._came_to_ns) >= MAX_STREAMS:
            self._came_to_ns.clear()
        self._came_to_ns[key] = mark.host_ns
        self.reached_ns = max(self.reached_ns, mark.before_ns)
        return True

    def _refresh(self, device: int) -> None:
        """Relate the clocks anew if that is due, by an event on a stream with nothing to do."""
        state = self._devices.setdefault(device, _Device())
        if not self._probes:
            return
        if state.probe is not None:
            event, before_ns = state.probe
            if not self._api.query(event):
                return
            state.probe = None
            self._rebase(device, state, event, before_ns, self._now_ns())
            return
        now_ns = self._now_ns()
        if state.probed_ns and now_ns - state.probed_ns < REFERENCE_NS:
            return
        event = self._take(device)
        if event is None:
            return
        state.probed_ns = now_ns
        before_ns = self._now_ns()
        self._api.record_aside(event, device)
        for _ in range(PROBE_QUERIES):
            if self._api.query(event):
                self._rebase(device, state, event, before_ns, self._now_ns())
                return
        state.probe = (event, before_ns)

    def _rebase(
        self, device: int, state: _Device, event: Any, before_ns: int, seen_ns: int
    ) -> None:
        """Make ``event`` the reference, which keeps it out of the pool."""
        elapsed_ns = None
        if state.reference is not None:
            elapsed_ns = self._elapsed_ns(state.reference, event)
            self._give_back(device, state.reference)
        state.clock.rebase(elapsed_ns, before_ns, seen_ns)
        state.reference = event

    def _elapsed_ns(self, start: Any, end: Any) -> int:
        return round(self._api.elapsed_ms(start, end) * _NS_PER_MS)
