"""What jobs have lost, counted so that it only grows: jobs come into memory and leave it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

MAX_ATTEMPTS = 10_000
"""Attempts whose losses are remembered when they have left memory, the oldest forgotten first."""
Key = tuple[str, str]
"""(stage, reason)"""


class DropLedger:
    """Adds up what is lost while this process runs.

    What an attempt had lost before the process began was counted by the one before it.
    """

    def __init__(self, began_wall_ns: int) -> None:
        self._began_wall_ns = began_wall_ns
        self._of_attempt: dict[int, Counter[Key]] = {}
        self.total: Counter[Key] = Counter()

    def take(self, attempt_id: int, first_seen_wall_ns: int, lost: Mapping[Key, int]) -> None:
        """Take all that an attempt has lost so far."""
        known = self._of_attempt.get(attempt_id)
        if known is None:
            while len(self._of_attempt) >= MAX_ATTEMPTS:
                del self._of_attempt[next(iter(self._of_attempt))]
            before = first_seen_wall_ns < self._began_wall_ns
            known = self._of_attempt[attempt_id] = Counter(lost) if before else Counter()
        for key, count in lost.items():
            more = count - known[key]
            if more > 0:
                self.total[key] += more
                known[key] = count
