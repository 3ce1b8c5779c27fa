"""Queries of the dashboard *Rank and node*: chosen ranks beside all others of their job."""

from __future__ import annotations

from paceline import metrics as m
from paceline.metrics import Metric
from paceline_dashboards.promql import (
    IN_JOB,
    OF_NODES,
    OF_RANKS,
    grown,
    largest,
    median,
    rate,
    series,
    top,
    total,
)
from paceline_dashboards.queries.findings import rank_node
from paceline_dashboards.queries.steps import STEPS, STEPS_SHOWN

PLACE = rank_node(OF_RANKS)
WASTED = total(series(m.RANK_WASTED_GPU_SECONDS, OF_RANKS), "rank")
LATENESS = largest(series(m.RANK_LATENESS_RATIO, OF_RANKS), "rank")
FLAGGED = largest(series(m.RANK_FLAGGED, OF_RANKS), "rank", "kind", "cause")
GPU_LOST = largest(series(m.RANK_GPU_LOST, OF_RANKS), "rank")


_PHASES = total(grown(m.RANK_PHASE_SECONDS, OF_RANKS), "phase", "rank")
_ALL_PHASES = total(grown(m.RANK_PHASE_SECONDS, IN_JOB), "phase", "rank")
PHASES = f"avg by (phase) ({_PHASES}) / scalar({STEPS_SHOWN})"
PHASES_MEDIAN = f"{median(_ALL_PHASES, 'phase')} / scalar({STEPS_SHOWN})"
PHASES_OVER_TIME = (
    f"avg by (phase) ({total(rate(m.RANK_PHASE_SECONDS, OF_RANKS), 'phase', 'rank')})"
    f" / scalar({STEPS})"
)


def newest(gauge: Metric) -> str:
    """Return a gauge of the chosen ranks."""
    return largest(series(gauge, OF_RANKS), "rank")


def newest_median(gauge: Metric) -> str:
    """Return the median of a gauge over all ranks of the job."""
    return median(largest(series(gauge, IN_JOB), "rank"))


THROTTLED = largest(series(m.RANK_THROTTLED, OF_RANKS), "rank", "reason")
THROTTLE_SHARE = total(rate(m.RANK_THROTTLE_SECONDS, OF_RANKS), "rank", "reason") + " > 0"
GPU_CLOCK_LIMIT = largest(series(m.RANK_SM_CLOCK_MAX_HERTZ, OF_RANKS))
GPU_POWER_LIMIT = largest(series(m.RANK_GPU_POWER_LIMIT_WATTS, OF_RANKS))
PCIE_REPLAYS = total(rate(m.RANK_PCIE_REPLAYS, OF_RANKS), "rank")
NVLINK_ERRORS = total(rate(m.RANK_NVLINK_ERRORS, OF_RANKS), "rank")
ECC_ERRORS = total(grown(m.RANK_ECC_ERRORS, OF_RANKS), "rank", "kind")
RUN_QUEUE = total(rate(m.RANK_RUN_QUEUE_SECONDS, OF_RANKS), "rank")
CPU_THROTTLED = total(rate(m.RANK_CPU_THROTTLED_SECONDS, OF_RANKS), "rank")

NODE_SELF = (
    f"{total(rate(m.NODE_SELF_SECONDS, OF_NODES), 'node')} / on (node) "
    f"count by (node) ({rank_node(OF_NODES)}) / scalar({STEPS})"
)
NODE_SELF_MEDIAN = (
    f"quantile(0.5, {total(rate(m.NODE_SELF_SECONDS, IN_JOB), 'node')} / on (node) "
    f"count by (node) ({rank_node(IN_JOB)})) / scalar({STEPS})"
)
NODE_CAUSED = total(rate(m.NODE_CAUSED_WAIT_SECONDS, OF_NODES), "node")
NODE_WASTED = f"{total(series(m.NODE_WASTED_GPU_SECONDS, OF_NODES), 'node')} / 3600"
NODE_RECOVERABLE = largest(series(m.NODE_RECOVERABLE_RATIO, OF_NODES), "node")
NODE_OFFENCES = (
    f"{largest(series(m.NODE_OFFENCES), 'node')} and on (node) "
    f"{total(series(m.NODE_SELF_SECONDS, OF_NODES), 'node')}"
)
NODE_FLAGGED = largest(series(m.NODE_FLAGGED, OF_NODES), "node", "kind", "cause")
NODE_CPU = largest(series(m.NODE_CPU_RATIO, OF_NODES), "node", "mode")
NODE_LOAD = largest(series(m.NODE_LOAD, OF_NODES), "node")
NODE_STALL = largest(rate(m.NODE_STALL_SECONDS, OF_NODES), "node", "resource")
NODE_MEMORY = largest(series(m.NODE_MEMORY_AVAILABLE_BYTES, OF_NODES), "node")
NODE_OOM_KILLS = largest(grown(m.NODE_OOM_KILLS, OF_NODES), "node")


def device(counter: Metric, label: str) -> str:
    """Return the growth of a counter of the nodes' devices, the largest sixteen."""
    return top(16, largest(rate(counter, OF_NODES), "node", "device", label))


NIC_BYTES = device(m.NODE_NIC_BYTES, "direction")
IB_BYTES = device(m.NODE_IB_BYTES, "direction")
IB_ERRORS = device(m.NODE_IB_ERRORS, "kind")
NIC_ERRORS = top(16, largest(rate(m.NODE_NIC_ERRORS, OF_NODES), "node", "device"))
IB_XMIT_WAIT = top(16, largest(rate(m.NODE_IB_XMIT_WAIT, OF_NODES), "node", "device"))
IB_UP = largest(series(m.NODE_IB_UP, OF_NODES), "node", "device")
