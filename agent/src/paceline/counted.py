"""A number with its noun, so that nobody reads of ``1 ranks``."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return them as text: ``1 rank``, ``1,024 ranks``.

    Args:
        number: how many.
        noun: of one; it may have an adjective before it.
        plural: of several; by default the noun with an s.
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
