"""What the bus side of a process counts, for /metrics and /readyz."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline import metrics
from paceline.metrics import Metric


@dataclass(slots=True, kw_only=True)
class BusStats:
    """Counts since the start; mutable, on the event loop."""

    published: int = 0
    publish_seconds: float = 0.0
    """Until the stream had acknowledged, summed over requests."""
    publishes: int = 0
    """Requests whose frames were published."""
    waiting_bytes: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    redelivered: int = 0
    terminated: Counter[str] = field(default_factory=Counter)
    takeovers: int = 0
    """Partitions that were taken since the start."""
    lag: dict[int, int] = field(default_factory=dict)
    """By partition that is owned: messages that are not yet acknowledged."""
    owned: int = 0

    def values(self) -> dict[Metric, float]:
        """Return the metrics without labels."""
        return {
            metrics.BUS_PUBLISHED: self.published,
            metrics.BUS_PUBLISHES: self.publishes,
            metrics.BUS_PUBLISH_SECONDS: self.publish_seconds,
            metrics.BUS_WAITING_BYTES: self.waiting_bytes,
            metrics.BUS_REDELIVERED: self.redelivered,
            metrics.BUS_TAKEOVERS: self.takeovers,
            metrics.BUS_LEASES: self.owned,
        }

    def labelled(self) -> dict[Metric, Mapping[tuple[str, ...], float]]:
        """Return the metrics with labels."""
        return {
            metrics.BUS_FAILURES: {(name,): float(n) for name, n in self.failures.items()},
            metrics.BUS_TERMINATED: {(name,): float(n) for name, n in self.terminated.items()},
            metrics.BUS_LAG_MESSAGES: {(str(p),): float(n) for p, n in self.lag.items()},
        }
