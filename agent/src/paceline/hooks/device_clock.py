"""Where a device's time lies on the host's monotonic clock.

An event happened after the call that recorded it and before the query that found it complete.
Each such pair bounds the offset between the two clocks; on a stream with nothing to do the
event follows its call within microseconds, so the lower bound is the better one (minimum lag).
"""

from __future__ import annotations

DRIFT_PPM = 100
"""A GPU's oscillator and the host's differ by 10 to 100 parts in a million."""
USUAL_LAG_NS = 5_000
"""From the call that records an event to the event, on an idle stream."""
MAX_HOP_NS = 16_000_000_000
"""Times between events come as 32-bit floats of ms: beyond 16 s they are coarser than 1 us."""


class DeviceClock:
    """Maps one device's times to the host's; ``rebase`` comes first.

    Times of the device are those since the present reference event (``elapsed_ns``) or, over
    all references, on an axis of their own (``axis_ns``), on which durations are exact.
    """

    def __init__(self) -> None:
        self.low_ns = 0
        """The reference event happened at this host time or later,"""
        self.high_ns = 0
        """and at this one or earlier."""
        self.base_ns = 0
        """When it is taken to have happened."""
        self.axis_ns = 0

    @property
    def error_ns(self) -> int:
        """How far a mapped time can be from the true one."""
        return max(self.high_ns - self.base_ns, self.base_ns - self.low_ns)

    def rebase(self, elapsed_ns: int | None, before_ns: int, seen_ns: int) -> None:
        """Take another event for reference.

        Args:
            elapsed_ns: the device's time since the former reference; None: there was none.
            before_ns: the host's time before the event was recorded.
            seen_ns: the host's time after it was found complete.
        """
        low_ns, high_ns = before_ns, seen_ns
        if elapsed_ns is not None:
            self.axis_ns += elapsed_ns
            if abs(elapsed_ns) <= MAX_HOP_NS:
                slack_ns = _slack_ns(elapsed_ns)
                low_ns = max(low_ns, self.low_ns + elapsed_ns - slack_ns)
                high_ns = min(high_ns, self.high_ns + elapsed_ns + slack_ns)
                if low_ns > high_ns:  # the clocks drift faster than thought: believe the newest
                    low_ns, high_ns = before_ns, seen_ns
        self.low_ns, self.high_ns = low_ns, high_ns
        self.base_ns = low_ns + min((high_ns - low_ns) // 2, USUAL_LAG_NS)

    def bound(self, elapsed_ns: int, before_ns: int, seen_ns: int) -> None:
        """Learn from an event: recorded after ``before_ns``, found complete at ``seen_ns``."""
        slack_ns = _slack_ns(elapsed_ns)
        self.low_ns = max(self.low_ns, before_ns - elapsed_ns - slack_ns)
        self.high_ns = max(min(self.high_ns, seen_ns - elapsed_ns + slack_ns), self.low_ns)
        self.base_ns = min(max(self.base_ns, self.low_ns), self.high_ns)

    def host_ns(self, elapsed_ns: int) -> int:
        """Return the host's time of a device time."""
        return self.base_ns + elapsed_ns


def _slack_ns(elapsed_ns: int) -> int:
    return abs(elapsed_ns) * DRIFT_PPM // 1_000_000
