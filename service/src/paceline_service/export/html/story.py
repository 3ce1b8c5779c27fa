"""What an HTML report tells beside the report itself; all of it may be absent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paceline.dataclass import dataclass
from paceline_service.export.step_table import StepTable
from paceline_service.export.telling import Lane

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Some steps of some ranks, to be drawn as a sawtooth."""

    title: str
    lanes: tuple[Lane, ...]
    table: StepTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Beside a report: steps, and what a collector knows of the job.

    Attributes:
        made_wall_ns: when the file was made; -1 leaves the time out.
        url: of the page of the job, for whoever reads the ticket.
        detail: the row of the job with its nodes.
        scenes: sawtooths.
        history: the step times of the whole attempt; its ranks are not looked at.
        waits: steps of all ranks, for the heatmap.
        what_if: the answer of ``/what-if``.
        incidents: of this attempt, the newest first.
        asked: the command that makes the file again.
    """

    made_wall_ns: int = -1
    url: str = ""
    detail: Json = field(default_factory=dict)
    scenes: tuple[Scene, ...] = ()
    history: StepTable | None = None
    waits: StepTable | None = None
    what_if: Json | None = None
    incidents: Sequence[Json] = ()
    asked: str = ""

    @property
    def nodes(self) -> dict[int, str]:
        """The nodes of ranks, as far as they are known."""
        told: Json = self.detail.get("nodes") or {}
        return {int(rank): str(node) for rank, node in told.items() if node}
