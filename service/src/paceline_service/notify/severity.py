"""How bad an incident is, by the GPUs that stand idle because of it.

The limits are those of the alerts (``paceline_dashboards.alerts_model``; a test compares): what
wakes somebody by way of Prometheus does so by way of a message, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline_service.notify_settings import Severity

SEVERITIES: tuple[Severity, ...] = ("info", "ticket", "page")
"""From the least to the worst."""
PAGE_GPUS = 8.0
"""A node of eight: 192 GPU-hours a day. Somebody is woken."""
TICKET_GPUS = 1.0
"""24 GPU-hours a day. Somebody looks at it by day."""
_STANDS_STILL = frozenset({"hang", "desync"})
"""Nothing is computed any more."""


def idle_gpus(finding: Mapping[str, Any], world_size: int) -> float | None:
    """Return how many GPUs a finding keeps idle; None where that is not known."""
    if finding["kind"] in _STANDS_STILL:
        return float(world_size)
    ratio = finding["recoverable_ratio"]
    return None if ratio is None else max(0.0, float(ratio)) * world_size


def severity_of(gpus: float | None) -> Severity:
    """Return the severity of so many idle GPUs."""
    if gpus is None or gpus < TICKET_GPUS:
        return "info"
    return "page" if gpus >= PAGE_GPUS else "ticket"


def at_least(severity: Severity, least: Severity) -> bool:
    """Whether ``severity`` is as bad as ``least``, or worse."""
    return SEVERITIES.index(severity) >= SEVERITIES.index(least)
