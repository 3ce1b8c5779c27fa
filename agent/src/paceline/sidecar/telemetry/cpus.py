"""CPU clocks and thermal throttling. Hundreds of files: read seldom."""

from __future__ import annotations

import re
from pathlib import Path

from paceline import telemetry as names
from paceline.sidecar.telemetry.files import names_in, read_int
from paceline.telemetry import Values

_CPU = re.compile(r"cpu[0-9]+\Z")


class Cpus:
    """Reads ``sysfs/devices/system/cpu``."""

    def __init__(self, sysfs: Path) -> None:
        self._directory = sysfs / "devices/system/cpu"

    def read(self) -> Values:
        """Return what can be known now; where no CPU tells a thing, it is left out."""
        clocks_khz: list[int] = []
        core_counts: list[int] = []
        package_counts: dict[int, int] = {}
        for name in names_in(self._directory):
            if not _CPU.match(name):
                continue
            cpu = self._directory / name
            if (khz := read_int(cpu / "cpufreq/scaling_cur_freq")) is not None:
                clocks_khz.append(khz)
            if (count := read_int(cpu / "thermal_throttle/core_throttle_count")) is not None:
                core_counts.append(count)
            count = read_int(cpu / "thermal_throttle/package_throttle_count")
            if count is not None:  # every CPU of a package says the same
                package = read_int(cpu / "topology/physical_package_id") or 0
                package_counts[package] = max(package_counts.get(package, 0), count)
        values: Values = {}
        if clocks_khz:
            values[names.CPU_CLOCK_MIN] = min(clocks_khz) * 1000
            values[names.CPU_CLOCK_MEAN] = sum(clocks_khz) * 1000 // len(clocks_khz)
        if core_counts:
            values[names.CPU_CORE_THROTTLE] = sum(core_counts)
        if package_counts:
            values[names.CPU_PACKAGE_THROTTLE] = sum(package_counts.values())
        return values
