"""What is normal for each rank: its persistent offset, its jitter, and how jitter lasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.scores import spread

MAX_AUTOCORRELATION = 0.9
HEALTHY_SPREAD = 0.017
"""Persistent differences of healthy ranks: 0.2-1.7 % on real clusters (DETECTION section 4)."""
MEDIAN_ERROR = 1.2533
"""Standard error of a median over that of a mean, sqrt(pi / 2), for normal values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What was learned from the first steps of a job.

    Attributes:
        offset: (R,) persistent score of each rank, log units, shrunk towards none at all as
            far as it is uncertain; 0 where unknown.
        jitter: residual standard deviation, log units, pooled over the ranks.
        autocorrelation: lag-1, pooled; 0 when there is none.
        offset_error: standard deviation of what is still unknown of an offset.
    """

    offset: FloatArray
    jitter: float
    autocorrelation: float
    offset_error: float


def learn_baseline(scores_TR: FloatArray) -> Baseline:
    """Learn from T steps of R scores (NaN absent).

    Healthy ranks differ by little (``HEALTHY_SPREAD``, or what their medians show beyond
    chance), so a median that jitter makes uncertain is mostly jitter: the offset is the
    posterior mean under a normal prior, its error the posterior standard deviation.
    The autocorrelation is the pooled Pearson correlation of residuals one step apart,
    clipped to [0, MAX_AUTOCORRELATION]; it whitens the evidence.
    """
    median = median_by_rank(scores_TR)
    residual = scores_TR - median
    flat = residual[~np.isnan(residual)]
    jitter = spread(flat)
    limit = 4 * jitter if jitter > 0 else np.inf
    tame = np.clip(residual, -limit, limit)
    before, after = tame[:-1].ravel(), tame[1:].ravel()
    both = ~np.isnan(before) & ~np.isnan(after)
    autocorrelation = 0.0
    if both.sum() >= 8 and before[both].std() > 0 and after[both].std() > 0:
        autocorrelation = float(np.corrcoef(before[both], after[both])[0, 1])
    autocorrelation = float(np.clip(autocorrelation, 0.0, MAX_AUTOCORRELATION))
    error = max(median_error(jitter, len(scores_TR), autocorrelation), 1e-9)
    beyond_error = max(spread(median) ** 2 - error**2, 0.0)
    healthy = max(HEALTHY_SPREAD**2, beyond_error)
    return Baseline(
        offset=median * healthy / (healthy + error**2),
        jitter=jitter,
        autocorrelation=autocorrelation,
        offset_error=float(np.sqrt(1 / (1 / healthy + 1 / error**2))),
    )


def median_error(jitter: float, count: int, autocorrelation: float) -> float:
    """Return the standard error of the median of ``count`` values with AR(1) noise."""
    lasting = (1 + autocorrelation) / (1 - autocorrelation)
    return MEDIAN_ERROR * jitter * float(np.sqrt(lasting / count))


def median_by_rank(scores_TR: FloatArray) -> FloatArray:
    """Return the median of each rank's known scores, 0 where it has none; (R,)."""
    known = ~np.isnan(scores_TR).all(axis=0)
    medians = np.zeros(scores_TR.shape[1])
    medians[known] = np.nanmedian(scores_TR[:, known], axis=0)
    return medians
