"""Noticing that the writer of a ring is gone."""

from __future__ import annotations

from paceline.ring import RingReader
from paceline.ring import layout as at

_ALIVE_CHECK_S = 0.5


class EndWatch:
    """Watches the writer of one ring; asks the kernel twice a second at most."""

    def __init__(self, reader: RingReader) -> None:
        self._reader = reader
        self._last_check_s = float("-inf")
        self._gone = ""

    def look(self, now_s: float) -> str:
        """Return ``closed`` or ``killed`` once the writer is gone, empty before."""
        if not self._gone:
            self._gone = self._look(now_s)
        return self._gone

    def _look(self, now_s: float) -> str:
        # In this order: a writer closes, then dies. What it wrote is complete once it is gone.
        if self._reader.closed_by_writer:
            return "closed"
        if now_s - self._last_check_s < _ALIVE_CHECK_S:
            return ""
        self._last_check_s = now_s
        if self._reader.writer_alive():
            return ""
        closed = self._reader.word(at.STATE_OFFSET) == at.STATE_CLOSED
        return "closed" if closed else "killed"
