"""Which frame numbers of one incarnation are known: few ranges, however long the job runs."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable


class SequenceRanges:
    """A set of integers from 0, kept as sorted, disjoint, half-open ranges."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, low: int = 0, known: Iterable[int] = ()) -> None:
        self._starts: list[int] = [0] if low > 0 else []
        self._ends: list[int] = [low] if low > 0 else []
        for seq in sorted(known):
            self.add(seq)

    def __contains__(self, seq: int) -> bool:
        at = bisect_right(self._starts, seq) - 1
        return at >= 0 and seq < self._ends[at]

    def add(self, seq: int) -> None:
        """Put ``seq`` into the set."""
        at = bisect_right(self._starts, seq) - 1
        if at >= 0 and seq < self._ends[at]:
            return
        joins_left = at >= 0 and self._ends[at] == seq
        joins_right = at + 1 < len(self._starts) and self._starts[at + 1] == seq + 1
        if joins_left and joins_right:
            self._ends[at] = self._ends.pop(at + 1)
            del self._starts[at + 1]
        elif joins_left:
            self._ends[at] = seq + 1
        elif joins_right:
            self._starts[at + 1] = seq
        else:
            self._starts.insert(at + 1, seq)
            self._ends.insert(at + 1, seq + 1)

    def add_range(self, first: int, end: int) -> None:
        """Put the integers from ``first`` to below ``end`` into the set."""
        if not self._ends or first > self._ends[-1]:
            if end > first:
                self._starts.append(first)
                self._ends.append(end)
        elif first == self._ends[-1]:
            self._ends[-1] = max(end, first)
        else:
            for seq in range(first, end):
                self.add(seq)

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges as (first, behind the last)."""
        return tuple(zip(self._starts, self._ends, strict=True))

    def gaps(self) -> tuple[tuple[int, int], ...]:
        """The ranges between the known ones, as (first, behind the last)."""
        return tuple(zip(self._ends[:-1], self._starts[1:], strict=True))
