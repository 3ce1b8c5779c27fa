"""What is known of a job at one moment; everything that is drawn comes from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline_service.export.step_table import StepTable
from paceline_service.export.telling import named_ranks

Json = Mapping[str, Any]
KEPT_CELLS = 200_000
MOST_STEPS, FEWEST_STEPS = 600, 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One job at one moment.

    Attributes:
        url: of the collector.
        job: its name.
        attempt: 0 until it is known.
        detail: the row of the job, with its nodes.
        report: ``paceline.report/1``.
        table: the newest steps of all ranks.
        pending: of a job that stands still, how long each rank is in a collective; None: in none.
        trouble: why nothing new comes at present, in words.
    """

    url: str
    job: str
    attempt: int = 0
    detail: Json = field(default_factory=dict)
    report: Json | None = None
    table: StepTable | None = None
    pending: Mapping[int, float | None] = field(default_factory=dict)
    trouble: str = ""

    @property
    def world_size(self) -> int:
        """How many ranks the job has."""
        if self.report is not None:
            return int(self.report["job"]["world_size"])
        return int(self.detail.get("world_size") or 0)

    @property
    def state(self) -> str:
        """``running``, ``silent`` or ``ended``; empty while it is not known."""
        if self.report is not None:
            return str(self.report["job"].get("state") or "")
        return str(self.detail.get("state") or "")

    @property
    def nodes(self) -> dict[int, str]:
        """The nodes of ranks, as far as they are known."""
        told: Json = self.detail.get("nodes") or {}
        return {int(rank): str(node) for rank, node in told.items() if node}

    @property
    def flagged(self) -> dict[int, str]:
        """Ranks that a finding names, with what is wrong with them in a word."""
        return named_ranks(self.report["findings"]) if self.report is not None else {}


def kept_steps(world_size: int) -> int:
    """Return how many steps are held of a job of that size."""
    return min(max(KEPT_CELLS // max(world_size, 1), FEWEST_STEPS), MOST_STEPS)
