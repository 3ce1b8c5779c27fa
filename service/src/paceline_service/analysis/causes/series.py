"""Telemetry as plain arrays, for whoever draws it: what was sampled of each rank, by name.

The causes of findings use ``causes_telemetry``, whose memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.event_log import LogTelemetry
from paceline.telemetry import REFRESH_NS, Kind, kind_of
from paceline_service.analysis.records import Int64Array

Float64Array = NDArray[np.float64]
MAX_GAUGE_AGE_NS = 15_000_000_000
"""The oldest gauge that still tells of a moment: the slowest are read every ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One value of one rank over time."""

    times_ns: Int64Array
    """(samples,), ascending, on the clock of the rank."""
    values: Float64Array
    """(samples,)."""


class TelemetryTable:
    """The numbers of samples by rank and name; text is in ``texts``.

    Args:
        samples: in any order, of any ranks.
    """

    def __init__(self, samples: Iterable[LogTelemetry]) -> None:
        numbers: dict[tuple[int, str], list[tuple[int, float]]] = {}
        self.texts: dict[tuple[int, str], list[tuple[int, str | list[str]]]] = {}
        """By rank and name: time and value, ascending, for example the reasons of throttling."""
        for sample in samples:
            for name, value in sample.values.items():
                key = (sample.rank, name)
                if isinstance(value, (int, float)):
                    numbers.setdefault(key, []).append((sample.time_ns, float(value)))
                else:
                    self.texts.setdefault(key, []).append((sample.time_ns, value))
        for text in self.texts.values():
            text.sort(key=lambda pair: pair[0])
        self._series: dict[tuple[int, str], Series] = {}
        for key, pairs in numbers.items():
            pairs.sort(key=lambda pair: pair[0])
            self._series[key] = Series(
                times_ns=np.array([time_ns for time_ns, _ in pairs], dtype=np.int64),
                values=np.array([value for _, value in pairs], dtype=np.float64),
            )

    @property
    def names(self) -> list[tuple[int, str]]:
        """The (rank, name) pairs that have numbers, ascending."""
        return sorted(self._series)

    def series(self, rank: int, name: str) -> Series | None:
        """Return what was sampled, or None; counters and facts only where they were sent."""
        return self._series.get((rank, name))

    def at(self, rank: int, name: str, times_ns: Int64Array) -> Float64Array:
        """Return the value that held at each time.

        Args:
            rank: whose.
            name: of the value.
            times_ns: (times,), on the clock of the rank.

        Returns:
            (times,): the newest value that is not after the time. NaN where there is none, or
            where it is too old: a counter or fact that is unchanged is sent once a minute.
        """
        out = np.full(len(times_ns), np.nan)
        series = self._series.get((rank, name))
        if series is None:
            return out
        gauge = kind_of(name) is Kind.GAUGE
        max_age_ns = MAX_GAUGE_AGE_NS if gauge else 2 * REFRESH_NS
        index = np.searchsorted(series.times_ns, times_ns, side="right") - 1
        known = index >= 0
        known[known] &= times_ns[known] - series.times_ns[index[known]] <= max_age_ns
        out[known] = series.values[index[known]]
        return out
