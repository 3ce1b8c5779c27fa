"""Numbers as a reader wants them: a unit that fits, no more digits than are meant."""

from __future__ import annotations

_TIME_UNITS = (("h", 3_600_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000))
_HOURS_FROM_NS = 2 * 3_600_000_000_000


def time_unit(largest_ns: int) -> tuple[str, int]:
    """Return the unit in which ``largest_ns`` reads best, as name and ns."""
    for name, unit_ns in _TIME_UNITS:
        if largest_ns >= (_HOURS_FROM_NS if name == "h" else unit_ns):
            return name, unit_ns
    return "ns", 1


def in_unit(time_ns: int, unit_ns: int) -> str:
    """Return a time in a unit that was chosen for its whole column, without the unit."""
    if unit_ns == 1:
        return f"{time_ns:,}"
    value = time_ns / unit_ns
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"


def format_ns(time_ns: int) -> str:
    """Return a duration with its unit, for example ``12.3 ms``."""
    name, unit_ns = time_unit(abs(time_ns))
    return f"{in_unit(time_ns, unit_ns)} {name}"


def precise_ns(time_ns: int) -> str:
    """Return a duration with three digits, for those that are compared: ``3.02 s``."""
    name, unit_ns = time_unit(abs(time_ns))
    value = time_ns / unit_ns
    if unit_ns == 1:
        return f"{time_ns:,} ns"
    digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
    return f"{value:,.{digits}f} {name}"


def format_gpu_s(gpu_s: float) -> str:
    """Return GPU-seconds, or GPU-hours where seconds would be many."""
    if abs(gpu_s) >= 7200:
        return f"{gpu_s / 3600:,.1f} GPU-h"
    if abs(gpu_s) >= 100:
        return f"{gpu_s:,.0f} GPU-s"
    return f"{gpu_s:.1f} GPU-s" if abs(gpu_s) >= 1 else f"{gpu_s:.2g} GPU-s"


def format_ratio(ratio: float) -> str:
    """Return a share as per cent: ``12 %``, ``3.4 %``, ``0.02 %``."""
    percent = ratio * 100
    if abs(percent) >= 10:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %" if abs(percent) >= 1 or percent == 0 else f"{percent:.2g} %"


def format_confidence(confidence: float) -> str:
    """Return a confidence as per cent; it is never rounded up to certainty."""
    if confidence > 0.9999:
        return "over 99.99 %"
    percent = confidence * 100
    return f"{percent:.2f} %" if percent > 99 else f"{percent:.0f} %"


def format_times(slowdown: float) -> str:
    """Return a factor: ``1.42x``, ``1.004x``, ``12x``."""
    if slowdown >= 10:
        return f"{slowdown:.0f}x"
    return f"{slowdown:.3f}x" if abs(slowdown - 1) < 0.01 else f"{slowdown:.2f}x"
