"""Numbers with units as text: a prefix that fits, no more digits than are meant."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DURATIONS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_PREFIXES = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def bandwidth_of(bytes_per_s: float) -> str:
    """Return a bandwidth in bytes and in bits, so that neither is taken for the other."""
    return f"{_scaled(bytes_per_s, 'B/s')} ({_scaled(bytes_per_s * 8, 'b/s')})"


def bytes_of(size: float) -> str:
    """Return a size: ``14 GB``."""
    return _scaled(size, "B")


def flops_of(flops: float) -> str:
    """Return a speed of computing: ``312 TFLOP/s``."""
    return _scaled(flops, "FLOP/s")


def count_of(number: float) -> str:
    """Return a number of parameters or tokens as people say it: ``7B``, ``66M``, ``2048``."""
    for least, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e5, "k")):
        if number >= least:
            scale = 1e3 if letter == "k" else least
            return f"{digits(number / scale)}{letter}"
    return f"{number:.0f}" if number == round(number) else digits(number)


def duration_of(seconds: float) -> str:
    """Return a time with the unit in which it reads best: ``43.75 ms``."""
    if seconds == 0:
        return "0 s"
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    for unit_s, name in _DURATIONS:
        if abs(seconds) >= unit_s:
            return f"{digits(seconds / unit_s, 4)} {name}"
    return f"{digits(seconds / 1e-9)} ns"


def digits(value: float, significant: int = 3) -> str:
    """Return a number with so many digits that mean something, never as a power of ten."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = significant - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(places, 0)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled(value: float, unit: str) -> str:
    for factor, prefix in _PREFIXES:
        if abs(value) >= factor:
            return f"{digits(value / factor)} {prefix}{unit}"
    return f"{digits(value)} {unit}"


def times_column(values_s: Sequence[float]) -> tuple[str, list[str]]:
    """Return the unit in which the largest of the times reads best, and each of them in it.

    Nothing but zeros is in seconds.
    """
    largest = max((abs(value) for value in values_s), default=0.0) or 1.0
    unit_s, name = next((pair for pair in _DURATIONS if largest >= pair[0]), _DURATIONS[-1])
    return name, [f"{value / unit_s:,.2f}" for value in values_s]
