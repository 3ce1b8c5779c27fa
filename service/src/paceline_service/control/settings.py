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
    """Empty: as each launch was started; nobody asked for one."""
    stride: int
    enabled: bool
    """False: nothing is recorded, and the level is kept for later."""
    telemetry_interval_s: float | None
    updated_wall_ns: int
    updated_by: str
    """Name of the token."""
    relief_stride: int = 1
    """What the collector asks for by itself while it cannot keep up (``control.relief``)."""

    @property
    def told_level(self) -> str:
        """The level that ranks are told."""
        return self.level if self.enabled else OFF

    @property
    def told_stride(self) -> int:
        """The stride that ranks are told: never less than somebody asked for."""
        return max(self.stride, self.relief_stride)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The step of one attempt from which a setting holds."""

    generation: int
    effective_step: int
    agreed_wall_ns: int
    level: str = ""
    """The level that its ranks were launched with, where nobody asked for one."""
