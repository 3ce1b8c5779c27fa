"""Pauses of Python's garbage collector, as phase records that lie within other phases."""

from __future__ import annotations

import gc

from paceline.clock import mono_ns
from paceline.hooks.recorder import Recorder
from paceline.vocabulary import Phase, RecordKind

PAUSE_NS = 1_000_000
"""Shorter collections, of which there are many, delay no collective that anybody would notice."""
_PHASE = int(RecordKind.PHASE)
_GC = int(Phase.GC)


class GcPauses:
    """Listens to the collector of this interpreter.

    A collection holds the interpreter's lock, so it stops every Python thread; none begins
    within another, so writing the record there cannot set off a further one.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._start_ns = 0

    def install(self) -> None:
        """Begin to listen."""
        gc.callbacks.append(self._heard)

    def uninstall(self) -> None:
        """Listen no more; harmless when it never did."""
        if self._heard in gc.callbacks:
            gc.callbacks.remove(self._heard)

    def _heard(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._start_ns = mono_ns()
            return
        start_ns, end_ns = self._start_ns, mono_ns()
        if not start_ns or end_ns - start_ns < PAUSE_NS:
            return
        recorder = self._recorder
        if not recorder.on or not recorder.detail:
            return
        try:
            recorder.writer.record(
                _PHASE, _GC, 0, info["generation"], recorder.clock.present_step, -1, 0,
                start_ns, end_ns,
            )  # fmt: skip
        except Exception as error:
            recorder.failed(error)
