"""What an importer answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from paceline_service.importers.faults import Faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The report as JSON, and what was wrong with its files."""

    report: dict[str, Any]
    faults: Faults
