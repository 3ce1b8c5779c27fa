"""One check of one set of replicas: who holds which digest, and what that amounts to.

Ranks are bits of a number: there may be ten thousand of them, and most hold the same.
"""

from __future__ import annotations

from dataclasses import field

from paceline.dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a check says: all agree, some differ from a majority, or there is no majority."""

    odd: int = 0
    """Ranks that hold another digest than more than half of all."""
    split: bool = False
    """They differ, and no digest is held by more than half."""

    @property
    def agreed(self) -> bool:
        """Whether all hold the same."""
        return not self.odd and not self.split


AGREED = Outcome()
SPLIT = Outcome(split=True)


@dataclass(slots=True)
class Votes:
    """The digests of one check, as far as they came."""

    count: int
    """Ranks that hold a replica."""
    holders: dict[int, int] = field(default_factory=dict)
    """By digest."""
    heard: int = 0

    def take(self, rank: int, value: int) -> None:
        """Take what ``rank`` found; the first word of a rank counts."""
        bit = 1 << rank
        if not self.heard & bit:
            self.heard |= bit
            self.holders[value] = self.holders.get(value, 0) | bit

    @property
    def complete(self) -> bool:
        """Whether everybody was heard."""
        return self.heard.bit_count() >= self.count

    def outcome(self) -> Outcome | None:
        """Return what is certain by now, whatever those say that were not heard; None: nothing."""
        if len(self.holders) < 2:
            return AGREED if self.complete else None
        most = max(self.holders.values(), key=lambda ranks: ranks.bit_count())
        if 2 * most.bit_count() > self.count:
            return Outcome(odd=self.heard & ~most)
        return SPLIT if self.complete else None


def ranks_of(mask: int) -> list[int]:
    """Return the ranks of a number of bits, ascending."""
    return [place for place, bit in enumerate(reversed(bin(mask)[2:])) if bit == "1"]
