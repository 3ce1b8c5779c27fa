"""What an importer answers."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from paceline.dataclass import dataclass
from paceline_service.importers.faults import Faults

if TYPE_CHECKING:
    from paceline_service.importers.log import EventLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The report as JSON, and what was wrong with its files."""

    report: dict[str, Any]
    faults: Faults
    log: EventLog | None = field(default=None, compare=False)
    """The timed records that it stands on, for drawings and tables; None where there are none.

    Whoever asked for the answer closes it.
    """
    world_size_told: bool = True
    """Whether the files tell how many ranks the job has; else it is that of the ranks seen."""
    parts: tuple[dict[str, Any], ...] = ()
    """The reports of single formats, in the order of ``data.sources``."""
