"""Processes whose frames the collector forbids at present: set aside, so that others go on.

A token that does not cover one job of a node says nothing about the node's other jobs. The frames
stay where they lie in the spool; here is how far each process was delivered.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline.sidecar.segment import Entry

Place = tuple[int, int]
"""Segment, and offset in it."""


class Aside:
    """By incarnation: the place in the spool before which nothing of it is left to deliver."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._turns: list[str] = []

    def __contains__(self, incarnation: str) -> bool:
        """Whether the frames of ``incarnation`` are set aside."""
        return incarnation in self._places

    def __bool__(self) -> bool:
        """Whether anything is set aside."""
        return bool(self._places)

    def put(self, segment: int, frames: Iterable[Entry]) -> None:
        """Set aside who made ``frames``, which lie in ``segment``; their first ones come first."""
        for entry in frames:
            self._places.setdefault(entry.incarnation, (segment, entry.start))

    def due_again(self) -> None:
        """Say that each may be tried once more."""
        self._turns = list(self._places)

    def next_turn(self) -> tuple[str, Place] | None:
        """Return whose turn it is, and where its frames begin; None when each had its turn."""
        while self._turns:
            place = self._places.get(self._turns[0])
            if place is not None:
                return self._turns[0], place
            del self._turns[0]
        return None

    def refused(self) -> None:
        """Say that the one whose turn it is is still forbidden."""
        del self._turns[:1]

    def delivered(self, incarnation: str, until: Place, passed: Place) -> None:
        """Note a delivery; who has caught up with ``passed`` is no longer set aside."""
        if incarnation in self._places:
            self._places[incarnation] = until
            if until >= passed:
                del self._places[incarnation]

    def is_left(self, entry: Entry, segment: int) -> bool:
        """Whether ``entry`` of ``segment`` was set aside and is still to be delivered."""
        place = self._places.get(entry.incarnation)
        return place is not None and (segment, entry.start) >= place

    def removed(self, segment: int, following: int) -> None:
        """Note that ``segment`` is gone."""
        for incarnation, (number, _) in self._places.items():
            if number == segment:
                self._places[incarnation] = (following, 0)

    def first(self, passed: Place) -> Place:
        """Return the place before which everything is delivered."""
        return min([passed, *self._places.values()])
