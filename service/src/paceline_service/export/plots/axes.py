"""Axes: where round values lie between two limits, linear or logarithmic."""

from __future__ import annotations

import math
from collections.abc import Iterable

from paceline.dataclass import dataclass

MOST_TICKS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From values to pixels."""

    low: float
    high: float
    from_px: float
    to_px: float
    log: bool
    ticks: tuple[float, ...]

    def px(self, value: float) -> float:
        """Return where a value lies; values beyond the axis lie at its end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log(low), math.log(high), math.log(at)
        return self.from_px + (at - low) / (high - low) * (self.to_px - self.from_px)

    def shows(self, value: float) -> bool:
        """Return whether a value can be drawn at all."""
        return math.isfinite(value) and (value > 0 or not self.log)


def axis(values: Iterable[float], from_px: float, to_px: float, *, log: bool, zero: bool) -> Axis:
    """Return the axis that holds ``values``.

    Args:
        values: what is drawn; what is not finite, or not positive on a logarithmic axis, is not.
        from_px: where the smallest lies.
        to_px: where the largest lies.
        log: equal factors are equally far apart.
        zero: a linear axis begins at 0, unless values are negative.
    """
    known = sorted({v for v in values if math.isfinite(v) and (v > 0 or not log)})
    low, high = (known[0], known[-1]) if known else (1.0, 10.0)
    if log:
        if high <= low:
            low, high = low / 2, high * 2
        ticks = _log_ticks(low, high, known)
    else:
        if zero:
            low, high = min(low, 0.0), max(high, 0.0)
        if high <= low:
            low, high = low - max(abs(low), 1.0) / 2, high + max(abs(high), 1.0) / 2
        ticks = _linear_ticks(low, high)
        if zero:
            step = ticks[1] - ticks[0]
            low, high = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
            ticks = _linear_ticks(low, high)
    return Axis(low=low, high=high, from_px=from_px, to_px=to_px, log=log, ticks=ticks)


def say(value: float) -> str:
    """Return a value of an axis, short."""
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return f"{value:,.6g}" if abs(value) < 1000 else f"{value:,.0f}"
    told = f"{value:.3g}"
    return told.replace("e+0", "e").replace("e+", "e").replace("e-0", "e-")


def _linear_ticks(low: float, high: float) -> tuple[float, ...]:
    step = 10.0 ** math.floor(math.log10((high - low) / MOST_TICKS))
    for factor in (1, 2, 5, 10, 20):
        if (high - low) / (step * factor) <= MOST_TICKS:
            step *= factor
            break
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return tuple(round(place * step, 12) + 0.0 for place in range(first, last + 1))


def _log_ticks(low: float, high: float, known: list[float]) -> tuple[float, ...]:
    """Return powers of two where that is what was asked for (K = 1, 4, 16), else of ten."""
    powers = [math.log2(value) for value in known]
    if len(known) > 1 and all(abs(power - round(power)) < 1e-9 for power in powers):
        every = max(-(-round(powers[-1] - powers[0]) // (MOST_TICKS + 2)), 1)
        return tuple(2.0**p for p in range(round(powers[0]), round(powers[-1]) + 1, every))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for within in ((1, 2, 5), (1, 3), (1,)):
        ticks = [m * 10.0**p for p in range(first, last + 1) for m in within]
        ticks = [tick for tick in ticks if low * 0.999 <= tick <= high * 1.001]
        if len(ticks) <= MOST_TICKS + 2:
            break
    if len(ticks) > MOST_TICKS + 2:
        ticks = ticks[:: -(-len(ticks) // MOST_TICKS)]
    return tuple(ticks) if len(ticks) >= 2 else (low, high)
