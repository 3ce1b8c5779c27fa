"""Plain values of a dump, whatever somebody put in their place."""

from __future__ import annotations

import math

MAX_NUMBER = 1 << 62
_MAX_DIMENSIONS = 16
_MAX_SIZE = 1 << 40


def text(value: object, most: int) -> str:
    """Return a text, cut; empty for what is none: the text of a foreign object may be endless."""
    return value[:most] if isinstance(value, str) else ""


def number(value: object) -> int | None:
    """Return a whole number from -1 on, also one that is given as text; None for what is none."""
    if isinstance(value, str) and len(value) <= 20:
        try:
            value = int(value)
        except ValueError:
            return None
    if type(value) is not int or not -1 <= value < MAX_NUMBER:
        return None
    return value


def elements(sizes: object) -> int:
    """Return how many elements the tensors of these shapes have; -1 where it is not told."""
    if not isinstance(sizes, list) or not sizes:
        return -1
    total = 0
    for shape in sizes:
        if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
            return -1
        known = [number(size) for size in shape]
        if any(size is None or not 0 <= size <= _MAX_SIZE for size in known):
            return -1
        total += math.prod(size for size in known if size is not None)
        if total >= MAX_NUMBER:
            return -1
    return total
