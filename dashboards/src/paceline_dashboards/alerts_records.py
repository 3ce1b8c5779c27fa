"""Recording rules: waste as a number of idle GPUs, and what alerts may be about.

``paceline:..._gpus:rate5m`` is GPU-seconds per second: the GPUs that stand idle, and so the
GPU-hours that an hour loses.
"""

from __future__ import annotations

from paceline import metrics
from paceline.metrics import Metric
from paceline_dashboards.alerts_model import (
    RATE_WINDOW,
    Record,
    grouped,
    lately,
    per_second,
)

STANDS_STILL = "hang|desync"
THERMAL_REASONS = "hw_slowdown|hw_thermal_slowdown|sw_thermal_slowdown"
"""As docs/telemetry.md names what holds a GPU's clocks down because it is hot."""
BUSY_RATIO = 0.5
"""A GPU that is busier than this is under load; idle ones lower their clocks anyway."""
_FINDING = "job, kind, cause"


def _wasted(of: str) -> str:
    return f"paceline:{of}_wasted_gpus:rate{RATE_WINDOW}"


RUNNING = Record(
    name="paceline:job_running",
    expr=lately(metrics.JOB_RANKS, 'state="running"', by="job"),
    meaning="Ranks seen of a job that runs.",
)
FLEET_WASTED = Record(
    name=_wasted("fleet"),
    expr=per_second(metrics.JOB_WASTED_GPU_SECONDS),
    meaning="GPUs that stand idle in all jobs, waiting for a slow rank.",
)
JOB_WASTED = Record(
    name=_wasted("job"),
    expr=per_second(metrics.JOB_WASTED_GPU_SECONDS, "job"),
    meaning="The same by job.",
)
NODE_WASTED = Record(
    name=_wasted("node"),
    expr=per_second(metrics.NODE_WASTED_GPU_SECONDS, "job, node"),
    meaning="GPUs that stand idle because of the ranks of a node.",
)
RANK_WASTED = Record(
    name=_wasted("rank"),
    expr=per_second(metrics.RANK_WASTED_GPU_SECONDS, "job, rank"),
    meaning="GPUs that stand idle because of a rank.",
)
FINDING_WASTED = Record(
    name=_wasted("finding"),
    expr=per_second(metrics.JOB_FINDING_SECONDS, _FINDING),
    meaning="GPUs that stand idle because of the findings of a kind and cause.",
)
RANK_NODE = Record(
    name="paceline:rank_node",
    # One row a rank also while it moves to another node: a join must not find two.
    expr=f"topk by (job, rank) (1, {lately(metrics.RANK_INFO)})",
    meaning="The node of a rank.",
)


def _standing(flagged: Metric, silenced: Metric) -> str:
    """Return what is flagged in a running job and not silenced."""
    expr = f"{lately(flagged)}\nunless {lately(silenced)}"
    return f"{grouped(expr)} and on (job) {RUNNING.name}"


def _with_node(rows: Record) -> str:
    """Return the rows of ranks with their nodes where those are known."""
    return (
        f"{rows.name} * on (job, rank) group_left (node) {RANK_NODE.name}\n"
        f"or {rows.name} unless on (job, rank) {RANK_NODE.name}"
    )


NODE_FINDING = Record(
    name="paceline:node_finding",
    expr=_standing(metrics.NODE_FLAGGED, metrics.NODE_SILENCED),
    meaning="1 while a finding names a node of a running job and nobody has silenced it.",
)
_RANK_FINDING = Record(
    name="paceline:rank_finding:anywhere",
    expr=_standing(metrics.RANK_FLAGGED, metrics.RANK_SILENCED),
    meaning="The same of a rank.",
)
RANK_FINDING = Record(
    name="paceline:rank_finding",
    expr=_with_node(_RANK_FINDING),
    meaning="The same of a rank, with its node where that is known.",
)
_SILENCED_HEAT = lately(metrics.RANK_SILENCED, 'cause=~"gpu_throttle|gpu_fault"', by="job, rank")
_HEAT = lately(metrics.RANK_THROTTLED, f'reason=~"{THERMAL_REASONS}"', by="job, rank")
_RANK_HOT = Record(
    name="paceline:rank_hot:anywhere",
    expr=(
        f"{_HEAT}\n"
        f"and on (job, rank) {lately(metrics.RANK_GPU_BUSY_RATIO)} > {BUSY_RATIO}\n"
        f"and on (job) {RUNNING.name}\n"
        f"unless on (job, rank) {_SILENCED_HEAT}"
    ),
    meaning="1 while heat holds down a GPU under load and nobody has silenced that.",
)
RANK_HOT = Record(
    name="paceline:rank_hot",
    expr=_with_node(_RANK_HOT),
    meaning="The same with the node of the rank.",
)
_JOB_FINDING = Record(
    name="paceline:job_finding:anywhere",
    expr=_standing(metrics.JOB_FINDING, metrics.JOB_FINDING_SILENCED),
    meaning="1 while a job has such a finding, also one that names nobody, not silenced.",
)
_ONE_NODE = Record(
    name="paceline:job_finding:node",
    expr=(
        f"{NODE_FINDING.name}\nand on ({_FINDING}) count by ({_FINDING}) ({NODE_FINDING.name}) == 1"
    ),
    meaning="The node of the findings of a kind and cause, where they name only one.",
)
JOB_FINDING = Record(
    name="paceline:job_finding",
    expr=(
        f"{_JOB_FINDING.name} * on ({_FINDING}) group_left (node) {_ONE_NODE.name}\n"
        f"or {_JOB_FINDING.name} unless on ({_FINDING}) {_ONE_NODE.name}"
    ),
    meaning="The findings of a job, with the node where they name one.",
)
_WORLD = f"max by (job) ({metrics.JOB_WORLD_SIZE.name})"
JOB_FINDING_GPUS = Record(
    name="paceline:job_finding:gpus",
    expr=(
        f'{JOB_FINDING.name}{{kind=~"{STANDS_STILL}"}} * on (job) group_left () {_WORLD}\n'
        f'or {JOB_FINDING.name}{{kind="communication_bound"}}\n'
        f"  * on (job) group_left () {per_second(metrics.JOB_EXPOSED_COMM_SECONDS, 'job')}\n"
        f'or {JOB_FINDING.name}{{kind!~"{STANDS_STILL}|communication_bound"}}\n'
        f"  * on ({_FINDING}) group_left () {FINDING_WASTED.name}\n"
        f"or {JOB_FINDING.name} * 0"
    ),
    meaning=(
        "What such a finding costs, in idle GPUs: all of a job that stands still; those that do "
        "nothing but transfer where communication takes longest; else those that wait."
    ),
)
RECORDS = (
    RUNNING, FLEET_WASTED, JOB_WASTED, NODE_WASTED, RANK_WASTED, FINDING_WASTED, RANK_NODE,
    NODE_FINDING, _RANK_FINDING, RANK_FINDING, _RANK_HOT, RANK_HOT, _JOB_FINDING, _ONE_NODE,
    JOB_FINDING, JOB_FINDING_GPUS,
)  # fmt: skip
