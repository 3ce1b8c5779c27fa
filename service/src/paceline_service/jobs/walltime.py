"""A rank's monotonic times on the wall clock, for drawing only, and when frames came.

Wall clocks jump. A small step back is a clock being disciplined and is followed; a large one
would put later steps before earlier ones, so it is counted and not followed.
"""

from __future__ import annotations

SLEW_NS = 50_000_000
"""Largest step backwards that is followed."""
MAX_WALL_NS = 1 << 62
"""In the year 2116: a database can hold it, with a step behind it."""
MAX_PAUSE_NS = 10_000_000_000
"""Sidecars send at least every 5 s: a longer pause is the collector's own."""


class WallClock:
    """The offset between one rank's monotonic clock and its wall clock, from its anchors."""

    __slots__ = ("_offset_ns", "jumps_back")

    def __init__(self) -> None:
        self._offset_ns: int | None = None
        self.jumps_back = 0
        """How often the wall clock was set back."""

    def anchor(self, mono_ns: int, wall_ns: int) -> None:
        """Take one instant read on both clocks; 0 is none."""
        if mono_ns <= 0 or wall_ns <= 0:
            return
        offset_ns = wall_ns - mono_ns
        if self._offset_ns is None or offset_ns >= self._offset_ns - SLEW_NS:
            self._offset_ns = offset_ns
        else:
            self.jumps_back += 1

    def to_wall_ns(self, time_mono_ns: int) -> int:
        """Return the wall-clock time of a monotonic one, -1 where no sensible anchor is known."""
        if self._offset_ns is None or time_mono_ns < 0:
            return -1
        wall_ns = time_mono_ns + self._offset_ns
        return wall_ns if 0 <= wall_ns < MAX_WALL_NS else -1


class ListeningClock:
    """When frames came, on a clock that stands still while none comes and never goes back.

    Where the collector was down, or its own clock jumped, nobody was silent: nobody was heard.
    """

    __slots__ = ("_last_wall_ns", "_skipped_ns")

    def __init__(self) -> None:
        self._last_wall_ns = 0
        self._skipped_ns = 0

    def came(self, wall_ns: int) -> bool:
        """Take the next arrival; return whether there was a pause or a jump before it."""
        before_ns, self._last_wall_ns = self._last_wall_ns, wall_ns
        if not before_ns:
            return False
        pause_ns = wall_ns - before_ns
        skipped_ns = pause_ns - min(max(pause_ns, 0), MAX_PAUSE_NS)
        self._skipped_ns += skipped_ns
        return skipped_ns != 0

    def time_ns(self, wall_ns: int) -> int:
        """Return the time on this clock of something that came since the last pause."""
        return wall_ns - self._skipped_ns
