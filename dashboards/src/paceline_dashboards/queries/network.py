"""Queries of the dashboard *Network*: transfers by group, the fit, slow links."""

from __future__ import annotations

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards.promql import IN_JOB, largest, quantile, rate, series, top, total

OF_GROUPS = 'job="$job",group=~"$group"'
_WHOSE = ("group", "op")


def newest(gauge: Metric) -> str:
    """Return a gauge by group and operation."""
    return largest(series(gauge, OF_GROUPS), *_WHOSE)


RESIDUAL, BUSBW, ALPHA, BETA = (
    newest(gauge)
    for gauge in (
        m.COLLECTIVE_RESIDUAL_RATIO,
        m.COLLECTIVE_BUSBW,
        m.COLLECTIVE_ALPHA_SECONDS,
        m.COLLECTIVE_BETA,
    )
)
WORST_RESIDUAL = f"max({series(m.COLLECTIVE_RESIDUAL_RATIO, IN_JOB)})"
SLOWEST_BUSBW = f"bottomk(12, {BUSBW})"
TRANSFER_P99 = quantile(0.99, m.COLLECTIVE_TRANSFER_SECONDS, OF_GROUPS, by=_WHOSE)
TRANSFERS = total(rate(m.COLLECTIVE_TRANSFER_SECONDS, OF_GROUPS, suffix="_count"), *_WHOSE)
TRANSFER_SHARE = total(rate(m.COLLECTIVE_TRANSFER_SECONDS, OF_GROUPS, suffix="_sum"), *_WHOSE)
TRANSFER_MEAN = f"{TRANSFER_SHARE} / {TRANSFERS}"
LINKS = largest(series(m.LINK_FLAGGED, IN_JOB), "source", "destination")
LINK_COUNT = f"count({LINKS}) or vector(0)"
NETWORK_FINDINGS = largest(
    series(m.JOB_FINDING, IN_JOB, 'kind=~"communication|communication_bound"'), "kind", "cause"
)
_PARTS = (m.JOB_SELF_SECONDS, m.JOB_WAIT_SECONDS, m.JOB_EXPOSED_COMM_SECONDS)
EXPOSED_SHARE = (
    f"{total(rate(m.JOB_EXPOSED_COMM_SECONDS, IN_JOB))} / "
    f"({' + '.join(total(rate(part, IN_JOB)) for part in _PARTS)})"
)
EXPOSED_BY_RANK = top(16, total(rate(m.RANK_EXPOSED_COMM_SECONDS, IN_JOB), "rank"))
IB_BYTES = top(16, largest(rate(m.NODE_IB_BYTES, IN_JOB), "node", "device", "direction"))
IB_ERRORS = top(16, largest(rate(m.NODE_IB_ERRORS, IN_JOB), "node", "device", "kind"))
