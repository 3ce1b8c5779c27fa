"""A wall clock for what cannot be undone: one that was set a moment ago is not believed yet."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

JUMP_S = 3600.0
"""By so much more than the time that passed: somebody, or something, set the clock."""
BELIEVED_S = 86_400.0
"""A clock that was set is believed when it has gone on so long."""
_log = structlog.get_logger("paceline.store")


class SteadyClock:
    """Tells the wall-clock time; after a jump, what it would be without it.

    A clock that is ten years ahead for a minute would let retention delete everything by its age.

    Args:
        wall_ns: the wall clock.
        mono_s: a clock that nobody can set.
        quiet: the log says nothing of a jump: another one of this process does.
    """

    def __init__(
        self,
        wall_ns: Callable[[], int] = time.time_ns,
        mono_s: Callable[[], float] = time.monotonic,
        *,
        quiet: bool = False,
    ) -> None:
        self._wall_ns = wall_ns
        self._quiet = quiet
        self._mono_s = mono_s
        self._told_ns = wall_ns()
        self._at_s = mono_s()
        self._seen_ns = self._told_ns
        self._set_at_s: float | None = None

    def now_ns(self) -> int:
        """Return the time; to be asked every few minutes at least."""
        wall_ns, at_s = self._wall_ns(), self._mono_s()
        passed_ns = int((at_s - self._at_s) * 1e9)
        expected_ns = self._told_ns + passed_ns
        if abs(wall_ns - (self._seen_ns + passed_ns)) > JUMP_S * 1e9:
            self._set_at_s = at_s
        if abs(wall_ns - expected_ns) <= JUMP_S * 1e9:
            if self._set_at_s is not None and not self._quiet:
                _log.info("the wall clock is right again")
            self._set_at_s, expected_ns = None, wall_ns
        elif self._set_at_s is not None and at_s - self._set_at_s >= BELIEVED_S:
            self._set_at_s, expected_ns = None, wall_ns
        elif self._set_at_s == at_s and not self._quiet:
            _log.warning(
                "the wall clock was set: nothing is deleted by that time until it has stood a day; "
                "restart the collector if it is right",
                by_s=round((wall_ns - expected_ns) / 1e9),
            )
        self._told_ns, self._at_s, self._seen_ns = expected_ns, at_s, wall_ns
        return expected_ns
