"""Counters that never go back: what was shown once is the least that is shown later.

An analysis that is made again from the store may blame a little less than the first one did, and
a finding may be withdrawn. A counter that fell would look to Prometheus like one that began again
at 0, and the whole cost of the job would appear a second time.
"""

from __future__ import annotations

from collections.abc import Collection

from paceline import metrics
from paceline.metrics import Metric
from paceline_service.export.rows import HistogramRow, Labels, Rows


class Floors:
    """What one attempt has shown so far.

    Args:
        free: counters that may begin again, such as those of a driver.
    """

    def __init__(self, free: Collection[Metric]) -> None:
        self._held = [m for m in metrics.ALL if m.kind == "counter" and m not in free]
        self._counts: dict[Metric, dict[Labels, float]] = {}
        self._histograms: dict[Metric, dict[Labels, HistogramRow]] = {}

    def hold(self, rows: Rows) -> None:
        """Raise the counters and histograms of ``rows`` to what was shown before; remember them."""
        for metric, before in self._counts.items():
            now = rows.values[metric]
            for labels, value in before.items():
                if now.get(labels, -1.0) < value:
                    now[labels] = value
        for kind, shown in self._histograms.items():
            present = rows.histograms[kind]
            for labels, row in shown.items():
                known = present.get(labels)
                present[labels] = row if known is None else known.at_least(row)
        self._counts = {m: rows.values[m] for m in self._held if m in rows.values}
        self._histograms = dict(rows.histograms)


class FindingCosts:
    """Counts of what the findings of one attempt cost, by kind and cause.

    A finding may be given another cause later. What it had cost until then stays where it was, so
    that the sum over the causes is the cost of the kind.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], float] = {}

    def update(self, cost_s: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
        """Return the counts, where the findings cost ``cost_s`` now."""
        for kind in {kind for kind, _ in cost_s}:
            total = sum(s for (of, _), s in cost_s.items() if of == kind)
            shown = sum(s for (of, _), s in self._shown.items() if of == kind)
            more = {
                key: s - self._shown.get(key, 0.0)
                for key, s in cost_s.items()
                if key[0] == kind and s > self._shown.get(key, 0.0)
            }
            wanted = sum(more.values())
            share = min(max(total - shown, 0.0) / wanted, 1.0) if wanted > 0 else 0.0
            for key, s in more.items():
                self._shown[key] = self._shown.get(key, 0.0) + s * share
        for key in cost_s:
            self._shown.setdefault(key, 0.0)
        return dict(self._shown)
