"""A session with NVML: begun when it can be, begun anew when the driver was replaced."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable
from typing import Any

from paceline import telemetry as names
from paceline.sidecar.telemetry.gpu import Device, SessionOverError
from paceline.sidecar.telemetry.reading import Gpu, Reading
from paceline.telemetry import MAX_TEXT_CHARS, Scope

_log = logging.getLogger("paceline.sidecar")
SLOW_NS = 10_000_000_000
_FIRST_PAUSE_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 60_000_000_000
_MAX_GPUS = 64


def load_module() -> Any:
    """Return the NVML module, or None where nvidia-ml-py is not installed."""
    try:
        return importlib.import_module("pynvml")
    except ImportError:
        return None


class Nvml:
    """Reads every GPU of the node. Not for several threads; ``doing`` may be read by others."""

    def __init__(self, load: Callable[[], Any] = load_module) -> None:
        self.doing: tuple[Gpu | None, str] = (None, "")
        """The GPU and the query that is being made now."""
        self.problem = ""
        """Why there is no session."""
        self._load = load
        self._nvml: Any = None
        self._absent = False
        self._devices: list[Device] = []
        self._worked = False
        self._open = False
        self._next_try_ns = 0
        self._pause_ns = _FIRST_PAUSE_NS
        self._slow_due_ns = 0

    @property
    def gpus(self) -> list[Gpu]:
        """The GPUs that were found."""
        return [device.gpu for device in self._devices]

    def read(self, now_ns: int) -> list[Reading]:
        """Return the readings of all GPUs; of a node without any, nothing."""
        try:
            if not self._open and not self._begin(now_ns):
                return self._trouble(now_ns)
            slow = now_ns >= self._slow_due_ns
            if slow:
                self._slow_due_ns = now_ns + SLOW_NS
            readings = []
            for device in self._devices:
                readings += device.read(now_ns, slow=slow)
        except SessionOverError as error:
            self._end(str(error), now_ns)
            return self._trouble(now_ns)
        finally:
            self.doing = (None, "")
        return [*readings, *self._trouble(now_ns)]

    def close(self) -> None:
        """End the session."""
        if self._open:
            self._open = False
            with contextlib.suppress(Exception):
                self._nvml.nvmlShutdown()

    def _begin(self, now_ns: int) -> bool:
        if self._absent or now_ns < self._next_try_ns:
            return False
        if self._nvml is None:
            self._nvml = self._load()
        if self._nvml is None:
            self._absent = True
            self.problem = "nvidia-ml-py is not installed"
            return False
        self.doing = (None, "init")
        nvml = self._nvml
        try:
            nvml.nvmlInit()
            self._open = True
            count = nvml.nvmlDeviceGetCount()
            self._devices = [Device(nvml, index, self._note) for index in range(count)[:_MAX_GPUS]]
        except SessionOverError as error:
            self._end(str(error), now_ns)
            return False
        except Exception as error:  # no driver, one of another version, no permission
            self._end(str(error), now_ns)
            return False
        if self._worked:
            _log.info("NVML answers again: %d GPUs", len(self._devices))
        self._worked = self._worked or bool(self._devices)
        self._pause_ns = _FIRST_PAUSE_NS
        self._slow_due_ns = 0
        self.problem = ""
        return True

    def _end(self, problem: str, now_ns: int) -> None:
        if self._worked and not self.problem:
            _log.warning("NVML answers no more: %s", problem)
        self.problem = problem[:MAX_TEXT_CHARS] or "an error without a text"
        self.close()
        self._next_try_ns = now_ns + self._pause_ns
        self._pause_ns = min(self._pause_ns * 2, _LONGEST_PAUSE_NS)

    def _trouble(self, now_ns: int) -> list[Reading]:
        """Return what is wrong with NVML itself, on a node where it has worked before."""
        if not self._worked:
            return []
        return [Reading(now_ns, Scope.NODE, {names.NVML_ERROR: self.problem})]

    def _note(self, gpu: Gpu, query: str) -> None:
        self.doing = (gpu, query)
