"""Telemetry of one node: threads that read, and the way of every value to the right rank."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from paceline import telemetry as names
from paceline.sidecar.telemetry.host_source import HostSource, Roots
from paceline.sidecar.telemetry.nvml import Nvml, load_module
from paceline.sidecar.telemetry.reading import Gpu, Reading, pci_address
from paceline.sidecar.telemetry.targets import (
    BEFORE_JOB_NS,
    GPU_PCI_FACT,
    Followed,
    Target,
    choose,
    first_of_jobs,
    is_event,
    route,
)
from paceline.sidecar.telemetry.worker import Worker
from paceline.telemetry import Scope

_log = logging.getLogger("paceline.sidecar")
DEFAULT_INTERVAL_S = 1.0
MIN_INTERVAL_S = 0.1
MAX_INTERVAL_S = 60.0
STUCK_NS = 5_000_000_000
"""A call to NVML that takes longer is told while it lasts."""
_TELL_STUCK_NS = 1_000_000_000
_MAX_EVENTS = 64


class Telemetry:
    """Samples while rings are followed; nothing runs before the first one.

    Args:
        roots: where the kernel shows itself.
        interval_s: 0 is off; it can be turned on later.
        load_nvml: returns the NVML module, or None.
    """

    def __init__(
        self, roots: Roots, interval_s: float, load_nvml: Callable[[], Any] = load_module
    ) -> None:
        self.failures = 0
        """Rounds that failed for a mistake of this code."""
        self._roots = roots
        self._interval_s = 0.0
        self._nvml = Nvml(load_nvml)
        self._host = HostSource(roots)
        self._workers: tuple[Worker, ...] = ()
        self._targets: dict[str, Target] = {}
        self._events: deque[tuple[int, Reading]] = deque(maxlen=_MAX_EVENTS)
        self._event_count = 0
        self._gpus: dict[str, Gpu] = {}
        self._stuck_told_ns = 0
        self.set_interval_s(interval_s)

    @property
    def interval_s(self) -> float:
        """How often is sampled; 0: not at all."""
        return self._interval_s

    def set_interval_s(self, interval_s: float) -> None:
        """Sample at another pace from now on; what is out of range is moved into it."""
        on = interval_s > 0  # which no number that is none is
        self._interval_s = min(max(interval_s, MIN_INTERVAL_S), MAX_INTERVAL_S) if on else 0.0

    def collect(self, followed: Sequence[Followed], now_ns: int) -> None:
        """Put what was sampled into the buffers of the rings in ``followed``.

        It never waits and never raises: records matter more.
        """
        try:
            self._collect(followed, now_ns)
        except Exception as error:
            self.failures += 1
            if self.failures == 1:
                _log.exception("telemetry: a sample was left out: %r", error)

    def _collect(self, followed: Sequence[Followed], now_ns: int) -> None:
        if not self._workers:
            if not followed or not self._interval_s:
                return
            self._begin()
        self._update(followed)
        for worker in self._workers:
            worker.set_interval_s(self._interval_s if followed else 0.0)
        targets = choose(self._targets.values())
        first = first_of_jobs(targets)
        for worker in self._workers:
            for reading in worker.take():
                self._take(reading, targets, first)
        if (stuck := self._stuck(now_ns)) is not None:
            route(stuck, targets, first)
        self._deliver_events(targets, first)

    def close(self) -> None:
        """Stop; a thread that is stuck in the driver is left behind, and dies with the process."""
        ended = [worker.stop() for worker in self._workers]
        if all(ended):
            self._nvml.close()
            self._host.close()

    def _begin(self) -> None:
        self._workers = (
            Worker("nvml", self._nvml.read, self._interval_s),
            Worker("host", self._host.read, self._interval_s),
        )
        for worker in self._workers:
            worker.start()

    def _update(self, followed: Sequence[Followed]) -> None:
        present = {one.identity.incarnation.hex(): one for one in followed}
        if present.keys() == self._targets.keys():
            return
        self._targets = {
            incarnation: self._targets.get(incarnation) or Target(one, self._roots.sysfs)
            for incarnation, one in present.items()
        }
        # Two rings of one process would tell the same twice.
        chosen = {id(target) for target in choose(self._targets.values())}
        self._host.processes = {
            incarnation: target.process
            for incarnation, target in self._targets.items()
            if target.process is not None and id(target) in chosen
        }

    def _take(self, reading: Reading, targets: list[Target], first: list[Target]) -> None:
        if is_event(reading):
            self._event_count += 1
            self._events.append((self._event_count, reading))
            return
        if reading.gpu is not None and reading.gpu.uuid:
            self._gpus[reading.gpu.uuid] = reading.gpu
        route(reading, targets, first)

    def _stuck(self, now_ns: int) -> Reading | None:
        began_ns = self._workers[0].began_ns
        if not began_ns or now_ns - began_ns < STUCK_NS:
            return None
        if now_ns - self._stuck_told_ns < _TELL_STUCK_NS:
            return None
        self._stuck_told_ns = now_ns
        gpu, _ = self._nvml.doing
        values: names.Values = {names.NVML_STUCK: round((now_ns - began_ns) / 1e9, 1)}
        return Reading(now_ns, Scope.NODE if gpu is None else Scope.GPU, values, gpu)

    def _deliver_events(self, targets: list[Target], first: list[Target]) -> None:
        """Give events to ranks, also to those whose ring was found a little later."""
        for number, reading in self._events:
            owners = [target for target in targets if self._uses(target, reading)]
            # Where no rank is known to use that GPU, the values of the node carry it.
            for target in owners or first:
                since_ns = target.followed.identity.created_mono_ns - BEFORE_JOB_NS
                if number not in target.delivered and reading.time_ns >= since_ns:
                    target.delivered.add(number)
                    target.add(reading, reading.values)

    def _uses(self, target: Target, reading: Reading) -> bool:
        if reading.gpu is None or not reading.gpu.pci:
            return False
        if told := target.followed.info.get(GPU_PCI_FACT):  # also where there is no NVML
            return pci_address(told) == reading.gpu.pci
        return any(gpu.pci == reading.gpu.pci and target.has(gpu) for gpu in self._gpus.values())
