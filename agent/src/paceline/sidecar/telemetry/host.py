"""The host: CPU time, pressure, memory, load."""

from __future__ import annotations

import contextlib
from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.telemetry.files import read_text, whole
from paceline.telemetry import Values

_CPU_FIELDS = 8
"""user, nice, system, idle, iowait, irq, softirq, steal; guest time is within user."""
_PRESSURE = {
    "cpu": {"some": names.STALL_CPU},
    "memory": {"some": names.STALL_MEMORY, "full": names.STALL_MEMORY_FULL},
    "io": {"some": names.STALL_IO, "full": names.STALL_IO_FULL},
}
_VMSTAT = {
    "pswpin": names.SWAP_IN,
    "pswpout": names.SWAP_OUT,
    "oom_kill": names.OOM_KILLS,
}
_MEMINFO = {"MemTotal:": names.MEMORY, "MemAvailable:": names.MEMORY_AVAILABLE}


class Host:
    """Reads ``procfs``; shares of CPU time are of the time since the read before."""

    def __init__(self, procfs: Path) -> None:
        self._procfs = procfs
        self._jiffies: list[int] = []

    def read(self) -> Values:
        """Return what can be known now."""
        values: Values = {}
        values |= self._cpu()
        values |= self._pressure()
        values |= self._memory()
        load = read_text(self._procfs / "loadavg").split()
        with contextlib.suppress(IndexError, ValueError):
            values[names.LOAD] = float(load[0])
        return values

    def _cpu(self) -> Values:
        line = read_text(self._procfs / "stat", 512).partition("\n")[0].split()
        parsed = [whole(part) for part in line[1 : 1 + _CPU_FIELDS]]
        jiffies = [part for part in parsed if part is not None]
        if line[:1] != ["cpu"] or len(jiffies) != _CPU_FIELDS:
            self._jiffies = []
            return {}
        before, self._jiffies = self._jiffies, jiffies
        if not before:
            return {}
        # iowait may run backwards a little
        spent = [max(now - then, 0) for now, then in zip(jiffies, before, strict=True)]
        total = sum(spent)
        if not total:
            return {}
        user, nice, system, _, iowait, irq, softirq, steal = spent
        return {
            names.CPU_USER: round((user + nice) / total, 4),
            names.CPU_SYSTEM: round((system + irq + softirq) / total, 4),
            names.CPU_IOWAIT: round(iowait / total, 4),
            names.CPU_STEAL: round(steal / total, 4),
        }

    def _pressure(self) -> Values:
        values: Values = {}
        for resource, lines in _PRESSURE.items():
            for line in read_text(self._procfs / "pressure" / resource, 512).splitlines():
                name = lines.get(line.partition(" ")[0])
                total = whole(line.rpartition("total=")[2])
                if name and total is not None:
                    values[name] = total
        return values

    def _memory(self) -> Values:
        values: Values = {}
        for line in read_text(self._procfs / "meminfo").splitlines():
            key, *rest = line.split()[:2] or [""]
            kib = whole(rest[0]) if rest and key in _MEMINFO else None
            if kib is not None:
                values[_MEMINFO[key]] = kib * 1024
        for line in read_text(self._procfs / "vmstat").splitlines():
            key, _, text = line.partition(" ")
            count = whole(text) if key in _VMSTAT else None
            if count is not None:
                values[_VMSTAT[key]] = count
        return values
