"""What a block of steps is measured with: nothing, Paceline, or another tool.

Imported by ``training_job`` within a rank; nothing of a tool is imported before its first block.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import paceline

NATIVE_ENV = "PACELINE_NATIVE"
POLL_S = 1.0


class Condition:
    """Nothing at all; the others add to it."""

    def begin(self, model: Any) -> None:
        """Switch on, before the steps of a block."""

    def end(self) -> None:
        """Switch off."""

    def step(self) -> AbstractContextManager[object]:
        """Return what is entered around each step."""
        return nullcontext()

    def section(self, name: str) -> AbstractContextManager[object]:
        """Return what is entered around a part of a step."""
        return nullcontext()


class Paceline(Condition):
    """The agent, with the hook in Python or the native one."""

    def __init__(self, native: bool) -> None:
        self._native = native
        self._handle: Any = None

    def begin(self, model: Any) -> None:
        """Install the hooks; the native one must really be there."""
        os.environ[NATIVE_ENV] = "auto" if self._native else "off"
        self._handle = paceline.init(job="bench")

    def end(self) -> None:
        """Take the hooks out, and the kernels that a closed agent leaves in torch."""
        self._handle.close()
        hooks = self._handle._agent._collectives
        (hooks.remove if self._native else hooks.leave)()


class Profiler(Condition):
    """torch.profiler over the whole block, CPU activities only."""

    def begin(self, model: Any) -> None:
        """Start it."""
        from torch.profiler import ProfilerActivity, profile

        self._profile = profile(activities=[ProfilerActivity.CPU])
        self._profile.start()

    def end(self) -> None:
        """Stop it; its trace is thrown away."""
        self._profile.stop()


class FlightRecorder(Condition):
    """A thread that dumps torch's flight recorder every second (it records in every condition)."""

    def begin(self, model: Any) -> None:
        """Start polling."""
        from torch._C import _distributed_c10d

        c10d: Any = _distributed_c10d
        dump: Callable[..., Any] = c10d._dump_fr_trace_json
        self._stopping = threading.Event()

        def poll() -> None:
            dump(includeCollectives=True, onlyActive=False)
            while not self._stopping.wait(POLL_S):
                dump(includeCollectives=True, onlyActive=False)

        self._thread = threading.Thread(target=poll, name="bench-flight-recorder")
        self._thread.start()

    def end(self) -> None:
        """Stop polling."""
        self._stopping.set()
        self._thread.join()


class Nvrx(Condition):
    """nvidia-resiliency-ext: sections round forward, backward and optimizer."""

    _detector: Any = None

    def begin(self, model: Any) -> None:
        """Initialise its detector once; it has no other off switch than not being called."""
        if self._detector is None:
            from nvidia_resiliency_ext.straggler import Detector

            Detector.initialize(gather_on_rank0=True)
            self._detector = Detector

    def section(self, name: str) -> AbstractContextManager[object]:
        """Return its section."""
        found: AbstractContextManager[object] = self._detector.detection_section(
            name, profile_cuda=False
        )
        return found


class TraceMl(Condition):
    """TraceML's step; the job is started by its own launcher, which patches torch for good."""

    def begin(self, model: Any) -> None:
        """Import it."""
        import traceml_ai

        self._trace_step, self._model = traceml_ai.trace_step, model

    def step(self) -> AbstractContextManager[object]:
        """Return its step."""
        found: AbstractContextManager[object] = self._trace_step(self._model)
        return found


CONDITIONS: dict[str, Callable[[], Condition]] = {
    "off": Condition,
    "null": Condition,
    "python": lambda: Paceline(native=False),
    "native": lambda: Paceline(native=True),
    "torch_profiler": Profiler,
    "flight_recorder": FlightRecorder,
    "nvrx": Nvrx,
    "traceml": TraceMl,
}
