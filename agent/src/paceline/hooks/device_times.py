"""Times on the device of one process: when they are taken, and what stops them for good."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from paceline.clock import mono_ns
from paceline.hooks.device_api import DeviceApi
from paceline.hooks.device_collectives import DeviceCollectives
from paceline.hooks.device_marks import Mark, Marks
from paceline.hooks.device_phases import DevicePhases
from paceline.hooks.pending import Entry
from paceline.vocabulary import Flag

if TYPE_CHECKING:
    from paceline.hooks.recorder import Recorder

log = logging.getLogger("paceline")
FULL = "full"
"""The level at which the device is timed."""


class DeviceTimes:
    """What the hooks tell of a device, and the poller's part of it.

    Args:
        api: the devices.
        recorder: where records go.
        choice: ``auto``, ``on`` or ``off``: the setting ``PACELINE_DEVICE_TIMERS``.
        env: usually ``os.environ``.
        plugin_times: whether the NCCL plugin takes the times of collectives in this process.
        coalescing: whether torch is gathering operations to launch them later.
        watch_waits: called once when waits of Python callers begin to matter; what it installs
            tells ``collectives.waited``.
        now_ns: the host's monotonic clock.
    """

    def __init__(
        self,
        api: DeviceApi,
        recorder: Recorder,
        *,
        choice: str,
        env: Mapping[str, str],
        plugin_times: Callable[[], bool],
        coalescing: Callable[[], bool],
        watch_waits: Callable[[], None] = lambda: None,
        now_ns: Callable[[], int] = mono_ns,
    ) -> None:
        self._api = api
        self._recorder = recorder
        self._choice = choice
        self._plugin_times = plugin_times
        self._now_ns = now_ns
        # With one hardware queue an event can come between kernels that would run side by side.
        self._one_queue = env.get("CUDA_DEVICE_MAX_CONNECTIONS") == "1"
        self._allowed = choice == "on" or (choice == "auto" and not self._one_queue)
        self._marks = Marks(api, now_ns, probes=not self._one_queue)
        self.collectives = DeviceCollectives(self._record, coalescing)
        self.phases = DevicePhases(
            self._record_boundary,
            self.collectives,
            wanted=lambda: recorder.detail,
            whole=lambda: recorder.control.whole,
        )
        self.device = -1
        """The device of the first collective; phases are timed there. -1: none was seen."""
        self.timing = False
        """Whether collectives are timed."""
        self._timing_phases = False
        self._entered: bool | None = None
        self._stopped = ""
        self._broken = False
        """Whether CUDA is: then not even its name is asked for."""
        self._watch_waits = watch_waits
        self._waits_watched = False
        self._told: dict[str, str] = {}
        self._described = False
        self._lock = threading.Lock()  # the poller's part, and a change of rings
        self.decide()

    @property
    def waiting(self) -> int:
        """How much waits for the device."""
        return len(self._marks) + len(self.collectives) + len(self.phases)

    def decide(self) -> None:
        """Look again whether times are to be taken: level, plugin and setting can change that."""
        wanted = self._allowed and self._recorder.level == FULL
        self._timing_phases = wanted
        self.timing = wanted and (self._choice == "on" or not self._plugin_times())

    def arrived(self, entry: Entry, device: int) -> None:
        """A collective on ``device`` is about to be issued."""
        if self.device < 0:
            self.device = device
            self.decide()
        if not self.timing:
            return
        self.collectives.arrived(entry, device)
        if entry.timed is not None:
            writer = self._recorder.writer
            entry.slot = writer.enter(entry.op, entry.fields, entry.start_ns, entry.flags)

    def returned(self, entry: Entry, has_work: bool, tells_async: bool) -> None:
        """The call of one that is timed came back; see ``DeviceCollectives.returned``."""
        self.collectives.returned(
            entry, has_work=has_work, tells_async=tells_async, now_ns=self._now_ns()
        )
        if self.collectives.works_seen and not self._waits_watched:
            self._waits_watched = True
            self._watch_waits()

    def output_waited(self, address: int) -> None:
        """The current stream waits for the functional collective with this output."""
        if self.collectives.outputs:
            self.collectives.output_waited(address)

    def poll(self) -> None:
        """Read and write what the devices have done; from one thread, the poller's."""
        if self.device < 0:
            return
        with self._lock:
            self.decide()
            self._read()
            self._describe()

    def flush(self) -> None:
        """Write what is open as such: the ring is about to be closed."""
        with self._lock:
            self.collectives.give_up(self._recorder.writer, int(Flag.NOT_WAITED))
            self.phases.give_up()
            self._described = False
            self._told.clear()

    def _read(self) -> None:
        if self._allowed:
            try:
                if self._entered is None:
                    self._entered = self._api.enter_polling_thread(self.device)
                if self._entered:
                    self._marks.poll()
                else:
                    self._stop("queries would disturb graphs that are being captured")
            except Exception as error:
                self.failed(error)
        writer = self._recorder.writer
        if self._allowed:
            self.collectives.poll(writer, self._marks.reached_ns)
            self.phases.poll(writer)
        else:
            self.collectives.give_up(writer, 0)
            self.phases.give_up()

    def failed(self, error: Exception) -> None:
        """A call of the device failed. Errors of CUDA stay, so nothing is timed any more."""
        if self._allowed:
            self._broken = True
            message = str(error).splitlines()
            self._stop(f"{type(error).__name__}: {message[0] if message else ''}")
            self._recorder.failed(error)

    def _stop(self, why: str) -> None:
        # What is open is written by the next poll, as if it had not been timed.
        self._allowed = self.timing = self._timing_phases = False
        log.info("the device is not timed any more: %s", why)
        self._stopped = why

    def _record(self, device: int) -> Mark | None:
        """Mark the current stream of ``device``; None while it is captured, and after errors."""
        if not self._allowed:
            return None
        try:
            if self._api.is_capturing():
                return None
            return self._marks.record(device)
        except Exception as error:
            self.failed(error)
            return None

    def _record_boundary(self) -> Mark | None:
        if not self._timing_phases or self.device < 0:
            return None
        return self._record(self.device)

    def _describe(self) -> None:
        """Name the device in the ring's metadata, and tell what was lost, each when it changes."""
        if not self._described and not self._broken:
            self._described = True
            try:
                for name, value in self._api.facts(self.device).items():
                    self._tell(name, value)
            except Exception as error:
                self._recorder.failed(error)
        if self._stopped:
            self._tell("device_timers", f"stopped: {self._stopped}"[:200])
        lost = self._marks.exhausted
        if lost:  # told at each doubling: the metadata is bounded
            self._tell("device_untimed", f"at least {1 << (lost.bit_length() - 1)}")

    def _tell(self, name: str, value: str) -> None:
        if self._told.get(name) != value:
            self._told[name] = value
            self._recorder.guarded(lambda: self._recorder.writer.meta({"info": {name: value}}))
