"""The settings of one job, and the step that an attempt agreed on, as values."""

from __future__ import annotations

from dataclasses import dataclass

from paceline.settings import LEVELS

OFF = LEVELS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """What somebody asked for; it stays for later launches of the job."""

    generation: int
    """Grows with every change of what is recorded."""
    level: str
    stride: int
    enabled: bool
    """False: nothing is recorded, and the level is kept for later."""
    telemetry_interval_s: float | None
    updated_wall_ns: int
    updated_by: str
    """Name of the token."""

    @property
    def told_level(self) -> str:
        """The level that ranks are told."""
        return self.level if self.enabled else OFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The step of one attempt from which a setting holds."""

    generation: int
    effective_step: int
    agreed_wall_ns: int
