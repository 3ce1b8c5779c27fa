"""The checks of one part of a set of replicas in their order: stretches of equal outcomes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import field, replace
from operator import attrgetter

from paceline.dataclass import dataclass
from paceline_service.analysis.replicas.votes import Outcome, ranks_of

MAX_STOPS = 256
"""What changes more often than that is nothing that stays, as a wrong parameter does."""
CONFIRM_CHECKS = 2
"""A rank is named when it differs in so many checks in a row: what happens once may be a read that
met a write, what is wrong in memory stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One check; those between two equal ones are only counted."""

    at: tuple[int, int]
    """Step, and number of the group's collectives."""
    outcome: Outcome
    checks: int = 1
    """It, and those before it that were left out as they were alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Checks in a row at which a rank (or nobody in particular) differed."""

    rank: int
    """-1: no majority says who."""
    first_step: int
    last_step: int
    checks: int
    agreed_step: int
    """The newest before it at which all agreed; -1: none."""
    again_step: int
    """The first after it at which the rank agreed; -1: none yet."""


@dataclass(slots=True)
class Course:
    """What is known of one part of one set; state is bounded."""

    stops: list[Stop] = field(default_factory=list)

    def add(self, at: tuple[int, int], outcome: Outcome) -> None:
        """Take the outcome of a check, in any order."""
        place = bisect_left(self.stops, at, key=attrgetter("at"))
        if place < len(self.stops) and self.stops[place].at == at:
            return
        self.stops.insert(place, Stop(at=at, outcome=outcome))
        # Of three alike in a row the middle one is left out, and counted with the one behind it.
        for middle in (place + 1, place, place - 1):
            if 0 < middle < len(self.stops) - 1:
                before, here, behind = self.stops[middle - 1 : middle + 2]
                if before.outcome == here.outcome == behind.outcome:
                    self.stops[middle + 1] = replace(behind, checks=behind.checks + here.checks)
                    del self.stops[middle]
        if len(self.stops) > MAX_STOPS:
            del self.stops[MAX_STOPS // 2]

    def with_open(self, more: list[tuple[tuple[int, int], Outcome]]) -> Course:
        """Return a copy that also knows of checks that are not complete."""
        out = Course(stops=list(self.stops))
        for at, outcome in more:
            out.add(at, outcome)
        return out

    def stretches(self) -> list[Stretch]:
        """Return where ranks differed, in the order in which that began."""
        if all(stop.outcome.agreed for stop in self.stops):
            return []
        out: list[Stretch] = []
        going: dict[int, Stretch] = {}
        agreed_step = -1
        for stop in self.stops:
            step = stop.at[0]
            differ = {-1} if stop.outcome.split else set(ranks_of(stop.outcome.odd))
            for rank in [rank for rank in going if rank not in differ]:
                # Without a majority nobody knows whether the rank agrees again.
                out.append(replace(going.pop(rank), again_step=-1 if -1 in differ else step))
            for rank in differ:
                known = going.get(rank)
                if known is None:
                    going[rank] = Stretch(
                        rank=rank, first_step=step, last_step=step, checks=stop.checks,
                        agreed_step=agreed_step, again_step=-1,
                    )  # fmt: skip
                else:
                    going[rank] = replace(known, last_step=step, checks=known.checks + stop.checks)
            if stop.outcome.agreed:
                agreed_step = step
        out += going.values()
        return sorted(out, key=lambda one: (one.first_step, one.rank))
