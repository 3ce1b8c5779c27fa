"""gamma = communication / compute of a data-parallel step, and where it is 1.

Source: docs/math/costs.md. T_comp = 6 P b / R; ring T_comm = 2 (K-1) alpha + 2 (K-1)/K g P / B.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.errors import ConfigError
from paceline_service.analysis.costs.collectives import ring_all_reduce_s
from paceline_service.analysis.costs.units import not_negative, positive, whole

FORWARD_BACKWARD = 6.0
"""FLOP per parameter and token: 2 forward, 4 backward."""
WITH_RECOMPUTATION = 8.0
"""Likewise, with the whole forward pass computed again in the backward pass."""
MOST_RANKS = 2**40
_SAME = 1e-12
"""Communication that is longer by less than rounding is not longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What has to be computed and sent in a step, and how fast a rank does both.

    Attributes:
        parameters: P.
        bytes_per_parameter: g, of a gradient on its way.
        bytes_per_s: B, out of a rank.
        alpha_s: of a message.
        flops_per_s: R, of a rank; None where the compute time is given instead.
        flops_per_parameter: FLOP per parameter and token.
        tokens_per_sample: of a batch that counts samples.
    """

    parameters: float
    bytes_per_parameter: float
    bytes_per_s: float
    alpha_s: float = 0.0
    flops_per_s: float | None = None
    flops_per_parameter: float = FORWARD_BACKWARD
    tokens_per_sample: float = 1.0

    def __post_init__(self) -> None:
        positive(self.parameters, "parameters", "parameters")
        positive(self.bytes_per_parameter, "bytes_per_parameter", "bytes")
        positive(self.bytes_per_s, "bytes_per_s", "bytes per second")
        not_negative(self.alpha_s, "alpha_s", "seconds per message")
        positive(self.flops_per_parameter, "flops_per_parameter", "FLOP")
        positive(self.tokens_per_sample, "tokens_per_sample", "tokens")
        if self.flops_per_s is not None:
            positive(self.flops_per_s, "flops_per_s", "FLOP per second")

    @property
    def gradient_bytes(self) -> float:
        """Return g P."""
        return self.parameters * self.bytes_per_parameter

    def compute_s(self, samples: float) -> float:
        """Return T_comp of so many samples on one rank."""
        if self.flops_per_s is None:
            raise ConfigError("flops_per_s is missing: give how fast a rank computes")
        tokens = samples * self.tokens_per_sample
        return self.flops_per_parameter * self.parameters * tokens / self.flops_per_s

    def all_reduce_s(self, ranks: int) -> float:
        """Return T_comm of a ring."""
        return ring_all_reduce_s(ranks, self.gradient_bytes, self.bytes_per_s, self.alpha_s)


@dataclass(frozen=True, slots=True)
class Load:
    """What a rank computes in a step when there are K: one of four ways to say it.

    Attributes:
        kind: ``global``: ``amount`` samples in all; ``local``: so many per rank; ``time``: so
            many seconds per rank; ``shared``: so many seconds in all, which the ranks share.
        amount: of that.
    """

    kind: Literal["global", "local", "time", "shared"]
    amount: float

    def __post_init__(self) -> None:
        positive(self.amount, f"{self.kind} load", "seconds" if self.timed else "samples")

    @property
    def timed(self) -> bool:
        """Return whether times are known and samples are not."""
        return self.kind in ("time", "shared")

    @property
    def fixed(self) -> bool:
        """Return whether more ranks have less to do each: strong scaling."""
        return self.kind in ("global", "shared")

    @property
    def most_ranks(self) -> int:
        """Return how many ranks can share it: none has less than a sample."""
        return min(MOST_RANKS, int(self.amount)) if self.kind == "global" else MOST_RANKS

    def local_batch(self, ranks: int) -> float | None:
        """Return the samples of a rank, None where only times are known."""
        if self.timed:
            return None
        return self.amount / ranks if self.fixed else self.amount

    def compute_s(self, model: Model, ranks: int) -> float:
        """Return T_comp."""
        samples = self.local_batch(ranks)
        if samples is not None:
            return model.compute_s(samples)
        return self.amount / ranks if self.fixed else self.amount


def gamma(model: Model, load: Load, ranks: int) -> float:
    """Return T_comm / T_comp with ``ranks`` ranks; 0 with one."""
    whole(ranks, "ranks", "ranks")
    return model.all_reduce_s(ranks) / load.compute_s(model, ranks)


def break_even_ranks(model: Model, load: Load) -> int | None:
    """Return the first K at which communication exceeds compute, None if there is none.

    gamma never falls with K: communication grows, compute falls or stays.
    """
    most = load.most_ranks

    def exceeds(ranks: int) -> bool:
        return gamma(model, load, ranks) > 1 + _SAME

    if not exceeds(most):
        return None
    below, above = 1, most
    while above - below > 1:
        middle = (below + above) // 2
        below, above = (below, middle) if exceeds(middle) else (middle, above)
    return above


def break_even_local_batch(model: Model, ranks: int) -> float:
    """Return the samples per rank at which gamma is 1: (K-1)/K g R / (3 B) without latency."""
    return model.all_reduce_s(ranks) / model.compute_s(1.0)


def latency_parameters(model: Model, ranks: int) -> float:
    """Return P below which latency is most of the all-reduce: 2 (K-1) alpha = 2 (K-1)/K g P / B."""
    whole(ranks, "ranks", "ranks")
    return ranks * model.alpha_s * model.bytes_per_s / model.bytes_per_parameter
