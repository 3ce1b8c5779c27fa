"""Which ranks a timeline draws where they are too many for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

DEFAULT_RANKS = 64
"""Where the job has more and none are asked for: those of findings, then the costliest."""


def telling_ranks(report: Mapping[str, Any], world_size: int) -> tuple[int, ...]:
    """Return the ranks to draw, ascending."""
    if world_size <= DEFAULT_RANKS:
        return tuple(range(world_size))
    named = [rank for finding in report["findings"] for rank in finding["ranks"]]
    costly = sorted(report["ranks"], key=lambda row: -(row["caused_wait_ns"] or 0))
    named += [row["rank"] for row in costly] + list(range(world_size))
    return tuple(sorted(list(dict.fromkeys(named))[:DEFAULT_RANKS]))
