"""A thread that proves the process alive and sees releases that nobody waits for in Python."""

from __future__ import annotations

import threading

from paceline.clock import mono_ns
from paceline.hooks.recorder import Recorder
from paceline.hooks.starvation import LockProbe

PENDING_PERIOD_S = 0.1
IDLE_PERIOD_S = 0.5
LOOK_PERIOD_S = 0.25
LONG_PENDING_NS = 500_000_000
"""Younger ones are left to the sweeps of the training thread, which date them better."""
ANCHOR_PERIOD_NS = 10_000_000_000


class Poller:
    """Runs until ``stop``, which joins it: an unjoined one can abort the exit of the process."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="paceline-poller", daemon=True)
        self._probe = LockProbe(recorder)
        self._anchored_ns = mono_ns()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop and join; harmless when it never ran."""
        self._stopping.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        period_s = IDLE_PERIOD_S
        while not self._stopping.wait(period_s):
            if not self._recorder.on:
                break
            self._recorder.guarded(self._poll)
            period_s = IDLE_PERIOD_S
            if self._probe.wanted:
                self._recorder.guarded(self._probe.look)
                period_s = LOOK_PERIOD_S
            if self._is_pending():
                period_s = PENDING_PERIOD_S
        self._probe.close()
        self._recorder.guarded(self._poll_device)

    def _is_pending(self) -> bool:
        device = self._recorder.device
        return len(self._recorder.pending) > 0 or (device is not None and device.waiting > 0)

    def _poll_device(self) -> None:
        if self._recorder.device is not None and self._recorder.on:
            self._recorder.device.poll()

    def _poll(self) -> None:
        recorder, now_ns = self._recorder, mono_ns()
        recorder.writer.heartbeat(recorder.clock.step)
        recorder.control.poll(now_ns)
        if now_ns - self._anchored_ns >= ANCHOR_PERIOD_NS:
            self._anchored_ns = now_ns
            recorder.writer.anchor()
        self._poll_device()
        recorder.pending.sweep(
            now_ns,
            recorder.clock.step,
            older_than_ns=LONG_PENDING_NS,
            spare_newest=recorder.clock.in_backward,
        )
