"""How long healthy ranks compute per step, and at how many FLOP/s (docs/math/calibration.md)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of

FloatArray = NDArray[np.float64]
Int64Array = NDArray[np.int64]

TWO_SIDED = 1.96
"""Standard errors of a 95 % interval."""
MEDIAN_ERROR = 1.2533
"""Error of a median over that of a mean, for normal values."""
MAD_TO_SD = 1.4826
MAX_CORRELATION = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeFit:
    """What the ranks of one peer group need by themselves, per step.

    Attributes:
        ranks: (K,) global ranks.
        level_ns: median over the ranks.
        error_ns: its standard error.
    """

    ranks: Int64Array
    level_ns: float
    error_ns: float

    @property
    def interval_ns(self) -> tuple[float, float]:
        """The 95 % interval of the level."""
        off = TWO_SIDED * self.error_ns
        return max(self.level_ns - off, 0.0), self.level_ns + off


def compute_fits(
    own_ns: FloatArray,
    groups: Sequence[Int64Array],
    relative_error: float,
    named: Collection[int] = (),
) -> list[ComputeFit]:
    """Return the fit of each peer group that has a rank with steps.

    The median over peers is blind to slow ones as long as they are fewer than half. Those that are
    named are left out where a peer remains: the median of two is their mean.

    Args:
        own_ns: (R,) mean own time of each rank per step; NaN where it has none.
        groups: disjoint peer groups of global ranks.
        relative_error: what all ranks share from step to step leaves so much doubt.
        named: ranks that are known to be slow.
    """
    fits = []
    for ranks in groups:
        mine = own_ns[ranks]
        healthy = mine[[rank not in named for rank in ranks.tolist()]] if named else mine
        mine = mine[~np.isnan(mine)]
        healthy = healthy[~np.isnan(healthy)]
        mine = healthy if len(healthy) else mine
        if not len(mine):
            continue
        level = median_of(mine)
        spread = MAD_TO_SD * median_of(np.abs(mine - level))
        between = MEDIAN_ERROR * spread / np.sqrt(len(mine))
        error = float(np.hypot(between, relative_error * level))
        fits.append(ComputeFit(ranks=ranks, level_ns=level, error_ns=error))
    return fits


def mean_level(fits: Sequence[ComputeFit]) -> tuple[float, float]:
    """Return the mean over all ranks of their groups' levels, and its error; ns.

    Errors are taken to be shared by the groups: the common mode is.
    """
    count = sum(len(fit.ranks) for fit in fits)
    if not count:
        return 0.0, 0.0
    level = sum(len(fit.ranks) * fit.level_ns for fit in fits) / count
    return level, sum(len(fit.ranks) * fit.error_ns for fit in fits) / count


def typical(values: FloatArray) -> tuple[float, float]:
    """Return the median of a series and its standard error, its lag-1 correlation counted in.

    Args:
        values: (n,) in the order of steps, n >= 1.
    """
    centre = median_of(values)
    if len(values) < 2:
        return centre, 0.0
    spread = MAD_TO_SD * median_of(np.abs(values - centre))
    rest = values - values.mean()
    power = float(rest @ rest)
    rho = float(rest[1:] @ rest[:-1]) / power if power > 0 else 0.0
    rho = min(max(rho, 0.0), MAX_CORRELATION)
    lasting = np.sqrt((1 + rho) / (1 - rho))
    return centre, float(MEDIAN_ERROR * spread * lasting / np.sqrt(len(values)))


def effective_flops(
    flops_per_step: float, world_size: int, interval_s: tuple[float, float], compute_s: float
) -> tuple[float, float, float]:
    """Return R, FLOP/s of a rank while it computes, with the ends of its 95 % interval.

    Args:
        flops_per_step: of the whole job, divided evenly among the ranks.
        world_size: R ranks.
        interval_s: of the compute per step, both > 0.
        compute_s: own time of a rank per step.
    """
    share = flops_per_step / world_size
    low, high = interval_s
    return share / compute_s, share / high, share / max(low, compute_s * 1e-3)
