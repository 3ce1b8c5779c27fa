"""What an engine counts, for /metrics and /readyz."""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline_service.export.histogram import Histogram


@dataclass(slots=True, kw_only=True)
class EngineStats:
    """Counts since the start."""

    frames: int = 0
    ticks: int = 0
    tick_seconds: float = 0.0
    last_tick_mono_s: float = 0.0
    rebuilds: int = 0
    failures: int = 0
    lag_seconds: float = 0.0
    """From the commit of the newest analysed frame to its analysis."""
    loaded: int = 0
    verdict_lag: Histogram = field(default_factory=Histogram)
    """From the end of a step to its verdict. The end is told by the wall clock of a rank."""

    def __add__(self, other: EngineStats) -> EngineStats:
        """Return the counts of two engines together; the older tick, the longer lag."""
        return EngineStats(
            frames=self.frames + other.frames,
            ticks=self.ticks + other.ticks,
            tick_seconds=self.tick_seconds + other.tick_seconds,
            last_tick_mono_s=min(self.last_tick_mono_s, other.last_tick_mono_s),
            rebuilds=self.rebuilds + other.rebuilds,
            failures=self.failures + other.failures,
            lag_seconds=max(self.lag_seconds, other.lag_seconds),
            loaded=self.loaded + other.loaded,
            verdict_lag=self.verdict_lag + other.verdict_lag,
        )
