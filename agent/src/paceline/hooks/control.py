"""What of a step is recorded: the level, the stride, and how they change at a step's boundary.

It stands between the step clock and the ring, which tells it where a step ends, so that all ranks
change at the same step (docs/control.md).
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any

from paceline.ring import layout
from paceline.ring.control import Setting, unpack_control
from paceline.settings import LEVELS
from paceline.vocabulary import Flag, RecordKind

if TYPE_CHECKING:
    from paceline.hooks.recorder import Recorder

STEPLESS_NS = 10_000_000_000
"""A rank that ends no step for so long after it was asked counts none. Sidecars tell it within
five seconds of each other: ranks that are all in a long first step have all heard of it by then."""
_STEP = int(RecordKind.STEP)
_NO_COLLECTIVES = int(Flag.NO_COLLECTIVES)
_COLLECTIVES = LEVELS.index("collectives")


class Control:
    """The sink of a step clock, which passes on what is to be recorded.

    Args:
        recorder: its ``level``, ``full`` and ``detail`` are set here.
        level: what holds until the sidecar asks for something else.
    """

    def __init__(self, recorder: Recorder, level: str) -> None:
        self._recorder = recorder
        self._seen = 0
        self._doubted = self._refused = 0
        self._pending: Setting | None = None
        self._heard_ns = 0
        self._rare = threading.Lock()  # the training thread and the poller
        self._generation = self._applied_step = 0
        self._stride = 1
        self._kept = True
        """Whether the present step is one of those that are kept whole."""
        self._changed_within = False
        """Whether the level changed within the present step."""
        self._captures = True
        """What the plugin was told."""
        self._set_level(level)

    def record(
        self,
        kind: int,
        code: int,
        group: int,
        seq: int,
        step: int,
        peer: int,
        payload_bytes: int,
        start_ns: int,
        end_ns: int,
    ) -> None:
        """Take a phase or a step of the clock; after a step another one begins."""
        if kind != _STEP:
            if self._phases and self._kept:
                self._recorder.writer.record(
                    kind, code, group, seq, step, peer, payload_bytes, start_ns, end_ns
                )
            return
        if self._phases:
            self._recorder.writer.record(
                kind, code, group, seq, step, peer, payload_bytes, start_ns, end_ns, 0, 0,
                0 if self.whole else _NO_COLLECTIVES,
            )  # fmt: skip
        self._begins(step + 1)

    @property
    def whole(self) -> bool:
        """Whether all collectives of the present step are recorded."""
        return self._recorder.full and not self._changed_within

    def renewed(self) -> None:
        """The ring is another one, in which nobody has asked for anything yet."""
        self._seen = self._doubted = self._refused = 0
        self._pending = None
        if self._generation:
            self._recorder.writer.applied(self._generation, self._applied_step)

    def poll(self, now_ns: int) -> None:
        """Let a rank that ends no steps follow too; called by the poller."""
        recorder = self._recorder
        if recorder.clock.step or recorder.clock.boundary_ns:
            return
        if recorder.writer.control_generation() != self._seen:
            self._read()
            self._heard_ns = now_ns
        if self._pending is not None and now_ns - self._heard_ns >= STEPLESS_NS:
            self._apply(0)
            self._changed_within = True

    def _begins(self, step: int) -> None:
        self._changed_within = False
        if self._recorder.writer.control_generation() != self._seen:
            self._read()
        if self._pending is not None and step >= self._pending.effective_step:
            self._apply(step)
        if self._stride > 1:
            self._keep(step % self._stride == 0)

    def _read(self) -> None:
        """Take note of what the sidecar asks for; what is torn is looked at again."""
        writer = self._recorder.writer
        setting = unpack_control(writer.control())
        if setting is None:
            word = writer.control_generation()
            if word == self._doubted and word != self._refused:
                self._refused = word
                writer.count(layout.CONTROL_REFUSED_OFFSET)
            self._doubted = word
            return
        with self._rare:
            self._seen = setting.generation
            self._pending = setting if setting.generation != self._generation else None

    def _apply(self, step: int) -> None:
        with self._rare:
            setting, self._pending = self._pending, None
            if setting is None:
                return
            self._generation, self._applied_step = setting.generation, step
            self._stride = setting.stride
            self._kept = True
            self._set_level(setting.level)
            self._recorder.writer.applied(setting.generation, step)
        if self._recorder.device is not None:
            self._recorder.device.decide()

    def _set_level(self, level: str) -> None:
        number = LEVELS.index(level)
        self._phases = number > 0
        self._collectives = number >= _COLLECTIVES
        self._recorder.level = level
        self._show()
        if self._captures != self._collectives:
            self._captures = self._collectives
            _tell_plugin(self._collectives)

    def _keep(self, kept: bool) -> None:
        if kept != self._kept:
            self._kept = kept
            self._show()

    def _show(self) -> None:
        recorder = self._recorder
        recorder.full = self._collectives and self._kept
        recorder.detail = recorder.full and recorder.level == LEVELS[-1]


def _tell_plugin(on: bool) -> None:
    """Let the NCCL plugin of this process, where there is one, record or count only."""
    try:
        package: Any = importlib.import_module("paceline.plugin")
        library = package.load()
    except (ImportError, AttributeError, OSError):
        return
    if library is not None:
        library.paceline_capture(int(on))
