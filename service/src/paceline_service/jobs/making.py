"""How a collector makes analyses."""

from __future__ import annotations

from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.jobs.live import MakeAnalysis
from paceline_service.settings import CollectorSettings


def analyses(settings: CollectorSettings) -> MakeAnalysis:
    """Return what makes a fresh analysis for a world size."""
    options = Options(
        details=True, hang_floor_s=settings.hang_floor_s, hang_startup_s=settings.hang_startup_s
    )

    def make(world_size: int) -> JobAnalysis:
        return JobAnalysis(world_size, options)

    return make
