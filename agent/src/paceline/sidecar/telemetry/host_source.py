"""Everything but GPUs: the host, its network, its kernel log, and the ranks' processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.telemetry.cpus import Cpus
from paceline.sidecar.telemetry.host import Host
from paceline.sidecar.telemetry.infiniband import Ports
from paceline.sidecar.telemetry.network import Cards
from paceline.sidecar.telemetry.process import Process
from paceline.sidecar.telemetry.reading import Gpu, Reading
from paceline.sidecar.telemetry.xid import KernelLog
from paceline.telemetry import Scope, clean

SLOW_NS = 10_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Roots:
    """Where the kernel shows itself: in a container the host's may be mounted elsewhere."""

    sysfs: Path = Path("/sys")
    procfs: Path = Path("/proc")
    kmsg: Path = Path("/dev/kmsg")


class HostSource:
    """Reads all of it; ``processes`` may be replaced by another thread at any time."""

    def __init__(self, roots: Roots) -> None:
        self.processes: Mapping[str, Process] = {}
        """By the incarnation of the ring that each writes."""
        self._roots = roots
        self._host = Host(roots.procfs)
        self._cards = Cards(roots.sysfs)
        self._ports = Ports(roots.sysfs)
        self._cpus = Cpus(roots.sysfs)
        self._log: KernelLog | None = None
        self._slow_due_ns = 0

    def read(self, now_ns: int) -> list[Reading]:
        """Return the readings of now."""
        slow = now_ns >= self._slow_due_ns
        values = self._host.read()
        values |= self._cards.read()
        values |= self._ports.read(slow=slow)
        if slow:
            self._slow_due_ns = now_ns + SLOW_NS
            values |= self._cpus.read()
        readings = [Reading(now_ns, Scope.NODE, clean(values))]
        for incarnation, process in self.processes.items():
            if values := process.read():
                readings.append(Reading(now_ns, Scope.PROCESS, values, incarnation=incarnation))
        return readings + self._events(now_ns)

    def close(self) -> None:
        """Close the kernel log."""
        if self._log is not None:
            self._log.close()

    def _events(self, now_ns: int) -> list[Reading]:
        if self._log is None:
            self._log = KernelLog(self._roots.kmsg, now_ns)
        readings = []
        for event in self._log.read(now_ns):
            values = clean(event.values)
            if names.XID in values:
                gpu = Gpu(index=-1, uuid="", pci=event.pci)
                readings.append(Reading(event.time_ns, Scope.GPU, values, gpu))
            else:
                readings.append(Reading(event.time_ns, Scope.NODE, values))
        return readings
