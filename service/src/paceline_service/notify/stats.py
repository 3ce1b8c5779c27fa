"""What the collector says of its own messages, for /metrics."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class NotifyStats:
    """Counts since the start."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By channel and what became of a message: delivered, refreshed, again, refused, given_up."""
    waiting: dict[str, int] = field(default_factory=dict)
    """By channel: messages that are on their way."""
    failures: int = 0
    """Rounds that could not be made."""

    def labelled(self) -> dict[tuple[str, ...], float]:
        """Return the counts by the labels of their metric."""
        return {(channel, outcome): n for (channel, outcome), n in self.outcomes.items()}
