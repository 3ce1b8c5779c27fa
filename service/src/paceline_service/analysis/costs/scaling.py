"""Strong and weak scaling: what more ranks give, and where they stop giving anything.

Source: docs/math/costs.md. Of one step: nothing hidden (compute + communication), and all hidden
that can be at best, behind the backward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline_service.analysis.costs.gamma import Load, Model

FORWARD = 2.0
"""FLOP per parameter and token of the forward pass; the rest is the backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A step with so many ranks.

    Attributes:
        ranks: K.
        local_batch: samples per rank, None where only the time is known.
        compute_s: T_comp.
        all_reduce_s: T_comm.
        latency_s: what of it no bandwidth removes.
        gamma: T_comm / T_comp.
        step_s: of both, one after the other.
        hidden_step_s: with all hidden behind the backward pass that can be.
        communication_ratio: share of ``step_s``.
        speedup: samples per second over those of one rank.
        efficiency: speedup / K.
    """

    ranks: int
    local_batch: float | None
    compute_s: float
    all_reduce_s: float
    latency_s: float
    gamma: float
    step_s: float
    hidden_step_s: float
    communication_ratio: float
    speedup: float
    efficiency: float


def point(model: Model, load: Load, ranks: int) -> Point:
    """Return the step of ``ranks`` ranks."""
    compute_s, all_reduce_s = load.compute_s(model, ranks), model.all_reduce_s(ranks)
    step_s = compute_s + all_reduce_s
    alone_s = load.compute_s(model, 1)
    backward_s = compute_s * (1 - FORWARD / model.flops_per_parameter)
    work = 1 if load.fixed else ranks  # what a step does, in steps of one rank
    speedup = work * alone_s / step_s
    return Point(
        ranks=ranks,
        local_batch=load.local_batch(ranks),
        compute_s=compute_s,
        all_reduce_s=all_reduce_s,
        latency_s=2 * (ranks - 1) * model.alpha_s,
        gamma=all_reduce_s / compute_s,
        step_s=step_s,
        hidden_step_s=compute_s + max(0.0, all_reduce_s - backward_s),
        communication_ratio=all_reduce_s / step_s,
        speedup=speedup,
        efficiency=speedup / ranks,
    )


def fastest_ranks(model: Model, load: Load) -> int | None:
    """Return the K with the shortest step at a fixed global batch, None where more is better.

    The step is (A - C)/K + C + 2 (K-1) alpha with A the compute of one rank, C = 2 g P / B: it
    falls until K = sqrt((A - C) / (2 alpha)), and never if A <= C. Of a batch of samples no rank
    has less than one.
    """
    gain_s = load.compute_s(model, 1) - 2 * model.gradient_bytes / model.bytes_per_s
    if gain_s <= 0:
        return 1
    if model.alpha_s == 0:
        return None
    near = min(math.sqrt(gain_s / (2 * model.alpha_s)), load.most_ranks)
    around = sorted({max(1, math.floor(near)), math.ceil(near)})
    return min(around, key=lambda ranks: point(model, load, ranks).step_s)


def speedup_limit(model: Model, load: Load) -> float:
    """Return what the speedup at a fixed global batch never reaches: A / C without latency."""
    best = fastest_ranks(model, load)
    if best is not None:
        return point(model, load, best).speedup
    return load.compute_s(model, 1) * model.bytes_per_s / (2 * model.gradient_bytes)
