"""The clocks of one process, and which other processes share them.

Only this module relates the monotonic clock to the wall clock. All durations
and arrivals are on the monotonic clock of the kernel that the rank runs on.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

mono_ns = time.monotonic_ns
wall_ns = time.time_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockAnchor:
    """One instant read on both clocks, so that monotonic times can be drawn on the wall clock."""

    mono_ns: int
    wall_ns: int

    def to_wall_ns(self, time_mono_ns: int) -> int:
        """Return the wall-clock time of a monotonic one, in ns since the epoch."""
        return time_mono_ns - self.mono_ns + self.wall_ns


def take_anchor() -> ClockAnchor:
    """Read both clocks as close together as three reads allow."""
    before_ns = mono_ns()
    now_wall_ns = wall_ns()
    after_ns = mono_ns()
    return ClockAnchor(mono_ns=(before_ns + after_ns) // 2, wall_ns=now_wall_ns)


def boot_id() -> str:
    """Return the kernel's boot id, or an empty string where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def time_namespace() -> int:
    """Return the inode of this process's time namespace, or 0 where there is none."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0


def clock_domain(boot: str, time_ns_inode: int) -> str:
    """Name the clock of a process: ranks whose domain is equal (and not empty) share it."""
    return f"{boot}:{time_ns_inode}" if boot else ""
