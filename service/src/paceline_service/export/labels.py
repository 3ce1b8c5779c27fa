"""Label values that senders choose, bounded: each would be a series for ever."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

MAX_REASONS = 100
"""Reasons of one stage with a series of their own; agents of every version know fewer."""
OTHER = "other"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")


def bounded_reasons(drops: Mapping[tuple[str, str], int]) -> dict[tuple[str, ...], float]:
    """Return counts by (stage, reason), with what is no name or one too many under ``other``."""
    shown: Counter[str] = Counter()
    out: Counter[tuple[str, str]] = Counter()
    for (stage, reason), count in sorted(drops.items()):
        known = _NAME.fullmatch(reason) is not None and shown[stage] < MAX_REASONS
        if known and reason != OTHER:
            shown[stage] += 1
        out[stage, reason if known else OTHER] += count
    return {key: float(count) for key, count in out.items()}
