"""What one scrape shows, as rows: label values and a number, by metric of the catalogue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import accumulate

from paceline.dataclass import dataclass
from paceline.metrics import Metric

Labels = tuple[str, ...]
Values = defaultdict[Metric, dict[Labels, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One of the observations in a bucket, which may be looked up (an exemplar)."""

    labels: Mapping[str, str]
    value: float
    time_s: float | None
    """Unix time, where it is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramRow:
    """A histogram: ``cumulative`` has one count more than ``bounds``, ascending.

    ``examples`` are by number of the bucket that they are in.
    """

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    total: float
    examples: Mapping[int, Example] = field(default_factory=dict)

    def at_least(self, other: HistogramRow) -> HistogramRow:
        """Return the same with no count below that of ``other``, of the same bounds."""
        if other.total <= self.total and all(
            one <= mine for one, mine in zip(other.cumulative, self.cumulative, strict=True)
        ):
            return self
        pairs = zip(self.cumulative, other.cumulative, strict=True)
        return HistogramRow(
            bounds=self.bounds,
            cumulative=tuple(max(pair) for pair in pairs),
            total=max(self.total, other.total),
            examples=self.examples,
        )


def histogram_row(
    bounds: tuple[float, ...],
    counts: Sequence[int],
    total: float,
    examples: Mapping[int, Example] | None = None,
) -> HistogramRow:
    """Return a histogram of the counts of each bucket, one more than bounds."""
    return HistogramRow(
        bounds=bounds, cumulative=tuple(accumulate(counts)), total=total, examples=examples or {}
    )


@dataclass(slots=True)
class Rows:
    """By metric; a histogram is in ``histograms``, everything else in ``values``."""

    values: Values = field(default_factory=lambda: defaultdict(dict))
    histograms: defaultdict[Metric, dict[Labels, HistogramRow]] = field(
        default_factory=lambda: defaultdict(dict)
    )

    def add(self, other: Rows) -> None:
        """Add the rows of ``other``, which have other labels."""
        for metric, rows in other.values.items():
            self.values[metric].update(rows)
        for metric, histograms in other.histograms.items():
            self.histograms[metric].update(histograms)
