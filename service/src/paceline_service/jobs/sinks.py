"""What a feed of frames gives to: whoever takes records, and whoever wants to know of arrivals."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Group, Int64Array


class Sink(Protocol):
    """What takes the records of an attempt; ``JobAnalysis`` does."""

    def declare_rank(self, rank: int, *, node: str = "", clock_domain: str = "") -> None:
        """Say where a rank runs."""

    def settle_after(self, steps: int) -> None:
        """Say, before anything else, how many first steps are settling, of an imported job."""

    def assume_noise(self, group: int, noise_ns: int) -> None:
        """Say how exactly the releases of a group are known, of an imported job."""

    def declare_group(self, group: Group) -> int:
        """Return the job-wide index of a group."""

    def add_table(self, table: Table) -> None:
        """Take records of many ranks, those of each in their order."""

    def rank_ended(self, rank: int, how: str) -> None:
        """Expect nothing more of a rank."""

    def note_dropped(self, rank: int, dropped: Mapping[str, int]) -> None:
        """Take what was lost on a rank so far."""

    def note_pending(
        self,
        rank: int,
        pending: Int64Array,
        *,
        now_ns: int,
        heard_wall_ns: int,
        step: int,
        checkpoint_ns: int,
    ) -> None:
        """Take what a rank was in when its newest frame was made (``standstill_watch``)."""


class Arrivals(Protocol):
    """What wants to know when frames come; ``JobAnalysis`` does."""

    def heard(self, rank: int, now_ns: int) -> None:
        """Records of ``rank`` came at a time of the clock that stands still in pauses."""

    def more_to_come(self, rank: int, *, more: bool) -> None:
        """Say whether the store is known to hold more of ``rank``."""
