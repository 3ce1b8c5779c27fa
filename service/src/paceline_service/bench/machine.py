"""What a result was measured on: hardware and versions, no host names and no paths."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def describe() -> dict[str, object]:
    """Return CPU, cores, memory and versions."""
    return {
        "cpu": _from_proc("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(_kib("/proc/meminfo", "MemTotal") / 2**20, 1),
        "kernel": platform.release().split("-")[0],
        "python": platform.python_version(),
        "torch": _version("torch"),
        "paceline": _version("paceline"),
    }


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process and its children that ended, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / CLOCK_TICKS


def family(pid: int) -> list[int]:
    """Return a process and all that it and its children started and that run."""
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):  # some kernels do not have it
        with suppress(OSError):  # a thread that has just ended
            for child in children.read_text("ascii").split():
                found += family(int(child))
    return found


def family_cpu_s(pid: int) -> float:
    """Return the CPU time of a process and of everything that it started, in seconds."""
    total_s = cpu_s(pid)
    for one in family(pid)[1:]:
        with suppress(OSError):  # it has just ended, and its time is its parent's now
            total_s += cpu_s(one)
    return total_s


def family_pss_kib(pid: int) -> int:
    """Return the memory of a process and of everything that it started, shared parts once."""
    total_kib = memory_kib(pid)["pss"]
    for one in family(pid)[1:]:
        with suppress(OSError):
            total_kib += memory_kib(one)["pss"]
    return total_kib


def memory_kib(pid: int | str = "self") -> dict[str, int]:
    """Return ``Rss`` and ``Pss`` of a process and its private memory, KiB."""
    rollup = f"/proc/{pid}/smaps_rollup"
    private = _kib(rollup, "Private_Clean") + _kib(rollup, "Private_Dirty")
    return {"rss": _kib(rollup, "Rss"), "pss": _kib(rollup, "Pss"), "private": private}


def _kib(path: str, key: str) -> int:
    return int(_from_proc(path, key).split()[0])


def _from_proc(path: str, key: str) -> str:
    for line in Path(path).read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return "0 unknown"


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "absent"
