"""When the collector cannot keep up: which job is asked to keep fewer steps, and when that ends.

There is no clock here: times are passed in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

HOLD_S = 30.0
"""A burst is answered with 429 and fits the queues; only what lasts is answered with a stride."""
SETTLE_S = 90.0
"""A change is agreed within 40 s, heard of within 8 s, and then what waits has to be worked off."""
RELEASE_S = 300.0
"""There must have been room for so long before a job may keep more again."""
LONGEST_RELEASE_S = 3600.0
"""So long where room did not last before: each time twice as long."""
STRAINED_RATIO = 0.5
EASY_RATIO = 0.1
STRAINED_LAG_S = 20.0
EASY_LAG_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How the collector is doing.

    Attributes:
        waiting_ratio: how full the fullest queue is.
        refused: how many requests had to be told 429 since the last time.
        lag_s: from the arrival of a frame to its analysis.
    """

    waiting_ratio: float
    refused: int
    lag_s: float

    @property
    def strained(self) -> bool:
        """Whether more comes than can be taken."""
        return (
            self.refused > 0 or self.waiting_ratio >= STRAINED_RATIO or self.lag_s >= STRAINED_LAG_S
        )

    @property
    def easy(self) -> bool:
        """Whether there is room."""
        return not self.refused and self.waiting_ratio <= EASY_RATIO and self.lag_s <= EASY_LAG_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that could keep fewer steps.

    Attributes:
        job: its name.
        records_per_s: what it sends at present.
        asked: the stride that it was asked for by this program, 1 for none.
        by_hand: the stride that somebody asked for.
    """

    job: str
    records_per_s: float
    asked: int
    by_hand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to ask a job for."""

    job: str
    stride: int
    direction: str
    """``up``: fewer steps, ``down``: more."""


class Relief:
    """Decides; asked every few seconds.

    Args:
        max_stride: the most that is asked for; 1 asks for nothing.
    """

    def __init__(self, max_stride: int) -> None:
        self._max_stride = max_stride
        self._strained_since_s: float | None = None
        self._easy_since_s: float | None = None
        self._changed_s = -SETTLE_S
        self._release_s = RELEASE_S
        self._lowered_s: float | None = None

    def decide(self, now_s: float, load: Load, jobs: Sequence[Candidate]) -> Order | None:
        """Return what to ask for now, if anything.

        Args:
            now_s: monotonic.
            load: since the last time.
            jobs: those that are running here and can be asked.
        """
        self._strained_since_s = _since(self._strained_since_s, now_s, holds=load.strained)
        self._easy_since_s = _since(self._easy_since_s, now_s, holds=load.easy)
        settled = now_s - self._changed_s >= SETTLE_S
        order = None
        if _lasts(self._strained_since_s, now_s, HOLD_S) and settled:
            order = self._fewer(jobs)
            if order and self._lowered_s is not None and now_s - self._lowered_s < 2 * RELEASE_S:
                self._release_s = min(2 * self._release_s, LONGEST_RELEASE_S)
        elif _lasts(self._easy_since_s, now_s, self._release_s) and settled:
            order = _more(jobs)
            if order is not None:
                self._lowered_s, self._easy_since_s = now_s, now_s
        if order is not None:
            self._changed_s = now_s
        return order

    def _fewer(self, jobs: Sequence[Candidate]) -> Order | None:
        possible = [one for one in jobs if max(one.asked, one.by_hand) < self._max_stride]
        if not possible:
            return None
        costliest = max(possible, key=lambda one: (one.records_per_s, one.job))
        stride = min(2 * max(costliest.asked, costliest.by_hand), self._max_stride)
        return Order(job=costliest.job, stride=stride, direction="up")


def _more(jobs: Sequence[Candidate]) -> Order | None:
    """Give back to the job that was asked for most."""
    asked = [one for one in jobs if one.asked > 1]
    if not asked:
        return None
    job = max(asked, key=lambda one: (one.asked, one.job))
    stride = job.asked // 2
    return Order(job=job.job, stride=stride if stride > job.by_hand else 1, direction="down")


def _since(since_s: float | None, now_s: float, *, holds: bool) -> float | None:
    if not holds:
        return None
    return now_s if since_s is None else since_s


def _lasts(since_s: float | None, now_s: float, for_s: float) -> bool:
    return since_s is not None and now_s - since_s >= for_s
