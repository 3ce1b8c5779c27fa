"""How many messages a channel is sent at most."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST = 5.0
"""So many at once, before the rate counts."""


class Bucket:
    """A token bucket.

    Args:
        per_minute: the rate.
        clock_s: monotonic.
    """

    def __init__(self, per_minute: float, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s = per_minute / 60
        self._clock_s = clock_s
        self._left = BURST
        self._at_s = clock_s()

    def take(self) -> bool:
        """Take one, if there is one."""
        now_s = self._clock_s()
        self._left = min(BURST, self._left + (now_s - self._at_s) * self._per_s)
        self._at_s = now_s
        if self._left < 1:
            return False
        self._left -= 1
        return True
