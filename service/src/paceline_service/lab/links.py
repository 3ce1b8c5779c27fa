"""What a transfer costs alone: a start-up time and a price per byte for each operation.

Fitted over the transfers that the training script makes one by one before it trains
(docs/math/network.md). What else runs on the machine can only add to a transfer, so of each size
the fastest quarter counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from paceline_service.analysis.costs.alpha_beta import Cost
from paceline_service.analysis.network.fit import fit_line
from paceline_service.lab.syncs import Sync

FAST_SHARE = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """What one operation costs alone, and the transfers that say so.

    Attributes:
        op: operation.
        size_bytes: payloads that were tried, ascending.
        took_s: what each took, the fastest quarter.
        cost: the line through them; None where start-up and bandwidth cannot be told apart.
        off_times: by which factor the line is off at the size where it is off most.
        off_bytes: that size.
    """

    op: str
    size_bytes: tuple[int, ...]
    took_s: tuple[float, ...]
    cost: Cost | None
    off_times: float
    off_bytes: int


def fit_wires(probe: Sequence[Sync]) -> dict[str, Wire]:
    """Return what each operation costs alone, by its name."""
    taken: dict[str, dict[int, list[int]]] = {}
    for sync in probe:
        if sync.transfer_ns > 0 and sync.payload_bytes > 0:
            taken.setdefault(sync.op, {}).setdefault(sync.payload_bytes, []).append(
                sync.transfer_ns
            )
    return {op: _wire(op, by_size) for op, by_size in taken.items()}


def _wire(op: str, by_size: dict[int, list[int]]) -> Wire:
    sizes = np.array(sorted(by_size), dtype=np.float64)
    took = np.array([np.quantile(by_size[int(size)], FAST_SHARE) for size in sizes])
    doubt = np.array([_error_ns(by_size[int(size)]) for size in sizes])
    line = fit_line(sizes, took, doubt)
    cost = Cost(line[0] / 1e9, line[1] / 1e9) if line is not None else None
    ratios = [ns / 1e9 / cost.seconds(size) if cost is not None else 1.0
              for size, ns in zip(sizes, took, strict=True)]  # fmt: skip
    off = [max(ratio, 1 / ratio) for ratio in ratios]
    return Wire(
        op=op,
        size_bytes=tuple(int(size) for size in sizes),
        took_s=tuple(float(ns) / 1e9 for ns in took),
        cost=cost,
        off_times=max(off),
        off_bytes=int(sizes[off.index(max(off))]),
    )


def _error_ns(taken: list[int]) -> float:
    """Return how far the lower quartile of ``taken`` may lie from the true one.

    Half of what lies between the least and the lower quartile: the upper half is the noise of
    others, which says nothing about the wire.
    """
    least, quarter = np.min(taken), np.quantile(taken, FAST_SHARE)
    return float(quarter - least) / 2


def modelled_s(wires: dict[str, Wire], op: str, payload_bytes: int) -> float | None:
    """Return what the model says that a transfer takes; None where there is no model."""
    wire = wires.get(op)
    return wire.cost.seconds(payload_bytes) if wire is not None and wire.cost is not None else None
