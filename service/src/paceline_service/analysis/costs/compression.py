"""Gradient compression: fewer bytes for more compute, and when that pays.

Source: docs/math/costs.md. Ratio r: what is sent is 1/r of the gradient. Encoding and decoding
cost time that is not hidden: bytes of the gradient over a speed, and once per received part where
parts cannot be summed as they are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from paceline_service.analysis.costs.alpha_beta import Cost, Machine
from paceline_service.analysis.costs.collectives import ring, ring_all_reduce
from paceline_service.analysis.costs.units import not_negative, positive, whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Compression:
    """A way to send less.

    Attributes:
        ratio: r, bytes of a gradient over bytes that are sent; over 1.
        s_per_byte: time to encode and decode, per byte of the gradient.
        summable: compressed gradients can be added (low rank, half precision), so a ring
            all-reduce carries them; else (the largest values with their places, signs) everybody
            gathers everybody's.
    """

    ratio: float
    s_per_byte: float = 0.0
    summable: bool = True

    def __post_init__(self) -> None:
        positive(self.ratio - 1, "compression ratio - 1", "times (a ratio is above 1, such as 4)")
        not_negative(self.s_per_byte, "s_per_byte", "seconds per byte")

    def cost(self, machine: Machine) -> Cost:
        """Return the cost over the payload *before* compression, encoding included."""
        whole(machine.ranks, "ranks", "ranks", least=2)
        if self.summable:
            sent, encoded = ring_all_reduce(machine), self.s_per_byte
            return Cost(sent.latency_s, sent.s_per_byte / self.ratio + encoded)
        gathered = ring(machine)  # its payload is what everybody has at the end: K parts
        share = machine.ranks / self.ratio
        return Cost(
            gathered.latency_s,
            gathered.s_per_byte * share + self.s_per_byte * (1 + share) / 2,
        )


def least_ratio(machine: Machine, s_per_byte: float, size_bytes: float, *, summable: bool) -> float:
    """Return the r above which compression saves time, at least 1, infinite where none does.

    Summable: 1 / (1 - t / beta') with t the time to encode a byte, beta' the ring's per byte.
    Not summable: K/2 with free encoding and messages, since K parts arrive instead of a sum; less
    where messages cost time, since an all-gather has half as many.

    Args:
        machine: the ranks.
        s_per_byte: t, of the gradient.
        size_bytes: of the gradient.
        summable: whether what is sent can be added.
    """
    plain = ring_all_reduce(machine)
    rate = plain.s_per_byte
    once = s_per_byte if summable else s_per_byte / 2
    left = rate - once
    if not summable:
        left += (plain.latency_s - ring(machine).latency_s) / size_bytes
    if left <= 0:
        return math.inf
    if summable:
        return rate / left
    per_share = ring(machine).s_per_byte + s_per_byte / 2
    return max(machine.ranks * per_share / left, 1.0)


def least_speed(machine: Machine, ratio: float) -> float:
    """Return the bytes per second that encoding and decoding must exceed to pay, if summable."""
    positive(ratio - 1, "compression ratio - 1", "times (a ratio is above 1, such as 4)")
    return 1 / (ring_all_reduce(machine).s_per_byte * (1 - 1 / ratio))
