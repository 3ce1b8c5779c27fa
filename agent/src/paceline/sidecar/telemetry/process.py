"""The process of a rank: how long it waited for a CPU, and what limits it."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path, PurePosixPath

from paceline import telemetry as names
from paceline.sidecar.telemetry.files import read_text, whole
from paceline.telemetry import Values

_FLOCK = struct.Struct("hhqqi4x")
_MAJOR_FAULTS = 9
"""Index in /proc/PID/stat behind the name of the command."""
_MAX_LEVELS = 16


def writer_pid(ring: Path) -> int:
    """Return the process that holds the lock of a ring, in this process's numbers; 0: unknown.

    The ring says a number too, but of the writer's own pid namespace: here it may be that of
    somebody else. The kernel translates the holder of a lock.
    """
    query = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fd = os.open(ring, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    except OSError:  # a file system without such locks
        return 0
    finally:
        os.close(fd)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else 0


def clock_offset_ns(pid: int | str, procfs: Path = Path("/proc")) -> int | None:
    """Return how far the monotonic clock of a process is before the kernel's own, or None."""
    text = read_text(procfs / str(pid) / "timens_offsets", 512)
    for line in text.splitlines():
        parts = line.split()
        if len(parts) == 3 and parts[0] in ("monotonic", "1"):
            try:
                return int(parts[1]) * 1_000_000_000 + int(parts[2])
            except ValueError:
                return None
    return None


class Process:
    """Reads one process of ``procfs`` and its cgroup below ``sysfs``."""

    def __init__(self, pid: int, sysfs: Path, procfs: Path = Path("/proc")) -> None:
        self._directory = procfs / str(pid)
        self._cgroups = _cgroup_directories(read_text(self._directory / "cgroup"), sysfs)

    def read(self) -> Values:
        """Return what can be known now; nothing of a process that is gone."""
        values: Values = {}
        # Of the main thread: it is the one that trains.
        schedstat = [whole(part) for part in read_text(self._directory / "schedstat", 256).split()]
        if len(schedstat) == 3 and schedstat[0] is not None and schedstat[1] is not None:
            values[names.RANK_ON_CPU] = schedstat[0]
            values[names.RANK_RUN_QUEUE] = schedstat[1]
        # The name of the command may hold anything, also blanks and brackets.
        stat = read_text(self._directory / "stat", 1024).rpartition(")")[2].split()
        if len(stat) > _MAJOR_FAULTS and (faults := whole(stat[_MAJOR_FAULTS])) is not None:
            values[names.RANK_MAJOR_FAULTS] = faults
        if values:
            values |= self._cgroup()
        return values

    def _cgroup(self) -> Values:
        throttled_ns = periods = 0
        limits: list[float] = []
        known = False
        for directory in self._cgroups:
            stat = _pairs(read_text(directory / "cpu.stat", 4096))
            if "nr_throttled" in stat:
                known = True
                periods += stat["nr_throttled"]
                throttled_ns += stat.get("throttled_time", 0)  # version 1 counts ns
                throttled_ns += stat.get("throttled_usec", 0) * 1000
            if (limit := _limit_cores(directory)) is not None:
                limits.append(limit)
        if not known:
            return {}
        values: Values = {names.CGROUP_THROTTLED: throttled_ns, names.CGROUP_PERIODS: periods}
        if limits:
            values[names.CGROUP_LIMIT] = round(min(limits), 3)
        return values


def _cgroup_directories(text: str, sysfs: Path) -> list[Path]:
    """Return the process's cgroup and those above it: each may have a limit of its own."""
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            roots = [sysfs / "fs/cgroup", sysfs / "fs/cgroup/unified"]
        elif "cpu" in controllers.split(","):
            roots = [sysfs / "fs/cgroup/cpu", sysfs / "fs/cgroup/cpu,cpuacct"]
        else:
            continue
        relative = PurePosixPath(path.lstrip("/"))
        if ".." in relative.parts:  # another container's: this one's sysfs does not show it
            continue
        levels = [relative, *relative.parents][:_MAX_LEVELS]
        for root in roots:
            found = [root / level for level in levels if (root / level / "cpu.stat").is_file()]
            if any("nr_throttled" in _pairs(read_text(one / "cpu.stat")) for one in found):
                return found
    return []


def _limit_cores(directory: Path) -> float | None:
    quota, _, period = read_text(directory / "cpu.max", 64).strip().partition(" ")
    if not quota:
        quota = read_text(directory / "cpu.cfs_quota_us", 64)
        period = read_text(directory / "cpu.cfs_period_us", 64)
    quota_us, period_us = whole(quota), whole(period)
    return quota_us / period_us if quota_us and period_us else None


def _pairs(text: str) -> dict[str, int]:
    pairs = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if (number := whole(value)) is not None:
            pairs[key] = number
    return pairs
