"""The newest telemetry of one rank, put together from samples that leave out what is unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paceline.telemetry import Kind, Values, clean, kind_of
from paceline.wire.frames import Sample

MAX_NAMES = 1024
STALE_NS = 30_000_000_000
"""A gauge that newer samples no longer hold is not known any more."""


class NewestTelemetry:
    """Takes the samples of one process of a rank."""

    def __init__(self) -> None:
        self.time_ns = -1
        """Of the newest sample, on the clock of the rank."""
        self._values: dict[str, tuple[object, int]] = {}
        self._view: Mapping[str, object] | None = None

    def add(self, samples: Iterable[Sample]) -> None:
        """Take some samples; the order within a frame is not that of time."""
        self._view = None
        for sample in samples:
            for name, value in clean(sample.values).items():
                known = self._values.get(name)
                if known is None and len(self._values) >= MAX_NAMES:
                    continue
                if known is None or known[1] <= sample.time_ns:
                    self._values[name] = (value, sample.time_ns)
            self.time_ns = max(self.time_ns, sample.time_ns)

    def values(self) -> Mapping[str, object]:
        """Return what is known now: events, facts and counters, and gauges that are not old."""
        if self._view is None:  # a new one each time: published snapshots keep the old one
            stale_ns = self.time_ns - STALE_NS
            self._view = {
                name: value
                for name, (value, time_ns) in self._values.items()
                if time_ns >= stale_ns or kind_of(name) is not Kind.GAUGE
            }
        return self._view


def cleaned(samples: Iterable[Sample]) -> list[tuple[int, Values]]:
    """Return time and values of the samples that hold any, as they may be written to a log."""
    pairs = ((sample.time_ns, clean(sample.values)) for sample in samples)
    return [(time_ns, values) for time_ns, values in pairs if values and 0 <= time_ns < 1 << 63]
