"""Puts the frames of one incarnation into their order; a gap is waited for, but not for ever."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
HOLD_LIMIT = 1024
"""Frames held behind a gap before it is skipped, whatever the clock says."""


class ReorderBuffer(Generic[T]):
    """Hands out items in the order of their numbers.

    Args:
        first_seq: the first number that is expected.
        wait_ns: how long a gap is waited for; None waits without end (replay: the store
            is known to hold what is missing).
        missing: ranges (first, behind the last) that will never come; they are skipped at once.
    """

    def __init__(
        self, first_seq: int, wait_ns: int | None, missing: Iterable[tuple[int, int]] = ()
    ) -> None:
        self.wait_ns = wait_ns
        self.skipped = 0
        """Numbers that were given up."""
        self.late = 0
        """Items that came after their number had been given up, or twice."""
        self._next = first_seq
        self.waits: dict[int, T] = {}
        """Items behind a gap, by their numbers."""
        self._gap_since_ns: int | None = None
        self._missing = deque(sorted(missing))

    def push(self, seq: int, item: T, now_ns: int) -> list[T]:
        """Take one item; return those whose turn it is."""
        if seq < self._next or seq in self.waits:
            self.late += 1
            return []
        if seq == self._next and not self.waits and not self._missing:
            self._next = seq + 1
            return [item]
        self.waits[seq] = item
        ready = self._drain()
        return ready + self.expire(now_ns)

    def is_late(self, seq: int) -> bool:
        """Whether the turn of ``seq`` is over, or it is here already."""
        return seq < self._next or seq in self.waits

    def take(self, seq: int) -> list[T] | None:
        """Take the number of an item that comes in its order: what is missing will not come.

        Returns:
            Items with lower numbers that were held, whose turn is before it; None: it is late.
        """
        if seq == self._next and not self.waits:
            self._next = seq + 1
            return []
        if self.is_late(seq):
            self.late += 1
            return None
        ready: list[T] = []
        while self.waits and min(self.waits) < seq:
            following = min(self.waits)
            self.skipped += following - self._next
            self._next = following
            ready += self._drain()
        self.skipped += seq - self._next
        self._next = seq + 1
        self._gap_since_ns = None
        return ready + self._drain()

    def expire(self, now_ns: int) -> list[T]:
        """Give up a gap that was waited for long enough; return the items behind it."""
        if not self.waits:
            self._gap_since_ns = None
            return []
        if self._gap_since_ns is None or now_ns < self._gap_since_ns:
            self._gap_since_ns = now_ns
        if self.wait_ns is None:
            return []
        waited = now_ns - self._gap_since_ns >= self.wait_ns
        if not waited and len(self.waits) <= HOLD_LIMIT:
            return []
        following = min(self.waits)
        self.skipped += following - self._next
        self._next = following
        self._gap_since_ns = None
        ready = self._drain()
        if self.waits:
            self._gap_since_ns = now_ns
        return ready

    def wait_again(self, wait_ns: int | None) -> None:
        """Wait for the present gap anew: nobody could send while nobody listened."""
        self.wait_ns = wait_ns
        self._gap_since_ns = None

    @property
    def held(self) -> int:
        """How many items wait behind a gap."""
        return len(self.waits)

    def _drain(self) -> list[T]:
        ready = []
        while True:
            while self._missing and self._missing[0][1] <= self._next:
                self._missing.popleft()
            if self._missing and self._missing[0][0] <= self._next:
                self.skipped += self._missing[0][1] - self._next
                self._next = self._missing.popleft()[1]
            item = self.waits.pop(self._next, None)
            if item is None:
                break
            ready.append(item)
            self._next += 1
        if ready:
            self._gap_since_ns = None
        return ready
