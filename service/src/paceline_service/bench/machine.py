"""What a result was measured on: hardware and versions, no host names and no paths."""

from __future__ import annotations

import os
import platform
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
    """Return the CPU time of a process, user and system, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def family(pid: int) -> list[int]:
    """Return a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children")  # some kernels do not have it
    return [pid, *(map(int, children.read_text("ascii").split()) if children.exists() else ())]


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
