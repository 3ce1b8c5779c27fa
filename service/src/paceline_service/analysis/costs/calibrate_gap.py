"""The step that was observed less the step that was expected, and where the rest went.

Every figure is a mean per rank and step, in nanoseconds. docs/math/calibration.md gives the
reasons for each rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from paceline.dataclass import dataclass
from paceline_service.analysis.normal import normal_quantile

PARTS = ("straggler", "network", "imbalance", "host", "slowdown")
"""What a gap is attributed to; what is left is ``unexplained``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step of a rank, split into what it is made of; the three sum to its duration."""

    compute_ns: float
    wait_ns: float
    comm_ns: float

    @property
    def total_ns(self) -> float:
        """The whole step."""
        return self.compute_ns + self.wait_ns + self.comm_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What findings stand for, by part.

    Attributes:
        waited_ns: waits that they caused.
        own_ns: own time of ranks beyond their peers', or beyond their past.
        comm_ns: transfers beyond what they took in good health.
    """

    waited_ns: Mapping[str, float]
    own_ns: Mapping[str, float]
    comm_ns: Mapping[str, float]


def barrier_ns(
    *, typical_ns: float | None, jitter: float | None, compute_ns: float, ranks: int,
    not_blamed_ns: float,
) -> float:  # fmt: skip
    """Return how long a rank waits at barriers when all ranks are healthy: E[max] - mean.

    Args:
        typical_ns: what it waits in a typical step in which nothing was found; None without one.
        jitter: coefficient of variation of a rank's compute from step to step; None where it is
            not known, or where it is itself what was found (uneven work).
        compute_ns: of a healthy rank.
        ranks: that wait for each other.
        not_blamed_ns: waits that no finding stands for.
    """
    if typical_ns is not None:
        return typical_ns
    tax_ns = compute_ns * jitter * largest_of(ranks) if jitter is not None else 0.0
    return max(tax_ns, not_blamed_ns, 0.0)


def attributed(observed: Step, expected: Step, losses: Losses) -> dict[str, float]:
    """Return the gap by part, ns; the parts and ``unexplained`` sum to the gap.

    Ranks that wait for a slow one would without it have waited a little for each other. So of
    the waits that findings stand for only those beyond the expected ones are lost.
    """
    lost = dict.fromkeys(PARTS, 0.0)
    found = sum(losses.waited_ns.values())
    beyond = min(max(observed.wait_ns - expected.wait_ns, 0.0), found)
    for part, waited in losses.waited_ns.items():
        lost[part] += waited / found * beyond if found > 0 else 0.0
    for more in (losses.own_ns, losses.comm_ns):
        for part, extra in more.items():
            lost[part] += extra
    lost["unexplained"] = observed.total_ns - expected.total_ns - sum(lost.values())
    return lost


def largest_of(count: int) -> float:
    """Return E[max of K standard normal values], m_K of the barrier tax.

    Blom (1958): the quantile of (K - 0.375) / (K + 0.25); within 0.025 of the truth for every K.
    """
    if count < 2:
        return 0.0
    if count == 2:
        return 1 / math.sqrt(math.pi)
    return normal_quantile((count - 0.375) / (count + 0.25))
