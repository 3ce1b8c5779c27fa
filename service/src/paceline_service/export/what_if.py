"""What leaving out single ranks and nodes gives back, as ``/what-if`` and the reports tell it."""

from __future__ import annotations

from typing import Any

from paceline_service.analysis.whatif.drain import Drain

Json = dict[str, Any]
CANDIDATES = 16
"""Ranks and nodes that are told of without being asked for: those that give back most."""


def candidates(drain: Drain) -> list[Json]:
    """Return the single ranks and nodes that would give back most, the most first."""
    found = [(ns, f"rank:{rank}") for rank, ns in drain.ranks.items()]
    found += [(ns, f"node:{node}") for node, ns in drain.nodes.items()]
    found.sort(key=lambda item: (-item[0], item[1]))
    return [
        {"without": name, "recoverable_ns": ns, "recoverable_ratio": drain.of(ns).ratio}
        for ns, name in found[:CANDIDATES]
    ]
