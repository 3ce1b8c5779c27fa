"""What all hooks of a process share: the ring, the counters, and the rule that nothing escapes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from paceline.clock import mono_ns
from paceline.hooks.control import Control
from paceline.hooks.groups import Groups
from paceline.hooks.pending import Pending
from paceline.hooks.steps import StepClock
from paceline.ring import layout
from paceline.ring.writer import RingWriter

if TYPE_CHECKING:
    from paceline.hooks.device_times import DeviceTimes
    from paceline.hooks.replicas import ReplicaCheck

log = logging.getLogger("paceline")
MAX_ERRORS = 1000
"""After so many failures the hooks only pass calls through."""


class Recorder:
    """The state behind the hooks of one process."""

    clock_type = StepClock
    pending_type = Pending

    def __init__(self, writer: RingWriter, groups: Groups, level: str) -> None:
        self.writer = writer
        self.groups = groups
        self.on = True
        """False: every hook passes the call through and does nothing else."""
        self.level = level
        self.full = False
        """Whether collectives are recorded at present, which level and stride say."""
        self.detail = False
        """Whether what only the level ``full`` brings is recorded at present."""
        self.control = Control(self, level)
        self.clock = self.clock_type(self.control)
        self.clock.saving = lambda since_ns: self.writer.saving(since_ns)
        self.pending = self.pending_type(writer)
        self.known_works: set[type] = set()
        self.device: DeviceTimes | None = None
        """Takes times on the device; None where torch has none."""
        self.replicas: ReplicaCheck | None = None
        """Adds up parameters every few steps; None where nobody asked for it."""
        self.errors = 0
        self._thread: int | None = None
        self._rival: int | None = None
        self._closed = False
        self.training_thread_id = 0
        """The system's number of the training thread; 0 until an optimizer stepped."""

    def in_training_thread(self) -> bool:
        """Whether the caller is the thread whose optimizer steps (any, until one did)."""
        return self._thread is None or self._thread == get_ident()

    def may_be_autograd(self) -> bool:
        """Whether the caller is the training thread, or one that Python did not make."""
        if self.in_training_thread():
            return True
        return isinstance(threading.current_thread(), threading._DummyThread)

    def claim_training_thread(self) -> None:
        """The caller's optimizer steps: its phases are the rank's.

        If it was another thread until now, the caller takes over when that one has ended, or
        when it steps a second time without a step of the other between.
        """
        me = get_ident()
        if self._thread == me:
            self._rival = None
        elif self._thread is None or self._rival == me or not _is_alive(self._thread):
            self._thread, self._rival = me, None
            self.training_thread_id = threading.get_native_id()
            self.clock.restart(mono_ns())
        else:
            self._rival = me

    def before_collective(self, start_ns: int) -> None:
        """A collective arrives after a step's end, or as the first thing of all."""
        if self.in_training_thread():
            self.clock.collective(start_ns)
        self.clock.seen(start_ns)

    def sweep(self, now_ns: int, joined_since_ns: int = 0) -> None:
        """Ask every pending collective whether it has completed (see ``Pending.sweep``)."""
        self.pending.sweep(now_ns, self.clock.step, joined_since_ns=joined_since_ns)

    def renew(self, writer: RingWriter) -> None:
        """Go on in another ring: the rank or the world is another one now."""
        self.guarded(self._flush_device)
        self.guarded(self.pending.close)
        self.guarded(self.writer.close)
        self.writer = self.pending.writer = writer
        self.control.renewed()

    def guarded(self, action: Callable[[], Any]) -> None:
        """Run ``action``; an exception is counted and goes no further."""
        try:
            action()
        except Exception as error:
            self.failed(error)

    def failed(self, error: Exception) -> None:
        """A hook failed: count it, tell it once, let training go on."""
        if self._closed:
            return  # a call was under way when the ring was closed
        self.errors += 1
        if self.errors == 1:
            log.warning(
                "a hook failed; training goes on and further failures are only counted",
                exc_info=error,
            )
        try:
            if self.on:
                self.writer.count(layout.HOOK_ERRORS_OFFSET)
        except Exception:
            self.on = False
        if self.errors >= MAX_ERRORS:
            self.on = False

    def close(self) -> None:
        """Write what is still open, then say goodbye in the ring."""
        if not self.on:
            return
        self.on = False
        self.guarded(self.clock.commit)
        self.guarded(self._flush_device)
        self.guarded(self.pending.close)
        self.guarded(lambda: self.writer.heartbeat(self.clock.step))
        self._closed = True
        self.guarded(self.writer.close)

    def _flush_device(self) -> None:
        if self.device is not None:
            self.device.flush()
        if self.replicas is not None:
            self.replicas.flush()


def _is_alive(ident: int) -> bool:
    return any(thread.ident == ident for thread in threading.enumerate())
