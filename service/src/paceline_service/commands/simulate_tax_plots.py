"""The plot of ``paceline simulate tax``."""

from __future__ import annotations

from collections.abc import Sequence

from paceline_service.export.plots import Drawing, Line, plot
from paceline_service.simulate.largest import mean_of_largest
from paceline_service.simulate.noise import Noise
from paceline_service.simulate.tax import Tax

_POINTS = 32


def tax_plot(found: Sequence[Tax], noise: Noise) -> Drawing:
    """Return the tax over the number of ranks: lines by the closed form, dots as drawn."""
    factors = sorted({tax.factor for tax in found})
    least, most = min(tax.ranks for tax in found), max(tax.ranks for tax in found)
    counts = sorted({round(least * (most / least) ** (at / _POINTS)) for at in range(_POINTS + 1)})
    lines = []
    for factor in factors:
        y = [
            100 * (mean_of_largest(noise, ranks, factor) / ((ranks - 1 + factor) / ranks) - 1)
            for ranks in counts
        ]
        lines.append(Line(f"lambda {factor:g}", counts, y, dots=False))
    for place, factor in enumerate(factors):
        row = [tax for tax in found if tax.factor == factor]
        x, drawn = [tax.ranks for tax in row], [100 * tax.tax for tax in row]
        lines.append(Line("", x, drawn, points_only=True, pen=place))
    return plot(
        "Tax over perfect balance: lines by the closed form, dots as drawn", "ranks K", "per cent",
        lines, log_x=True,
    )  # fmt: skip
