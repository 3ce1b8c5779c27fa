"""One job as rows of /metrics: totals of the job and its nodes, and of its chosen ranks."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from paceline import metrics
from paceline.dataclass import dataclass
from paceline.metrics import Metric
from paceline.vocabulary import EXCLUSIVE_PHASES, phase_name
from paceline_service.analysis.network.series import TRANSFER_BOUNDS_S, TransferFigures
from paceline_service.analysis.records import Int64Array
from paceline_service.export.rows import HistogramRow, Rows, Values, histogram_row
from paceline_service.export.telemetry_series import node_telemetry, rank_telemetry, tells_of_node

Json = dict[str, Any]
MAX_LINKS = 64
"""Links of a job that are flagged one by one."""
OLDEST_PENDING = 32
"""Ranks without series of their own whose pending collective is shown: those of a hang."""
RANKS_PER_NODE = 4
"""Of the limit of ranks follows that of nodes whose telemetry is shown."""
LEAST_NODES = 16
_PHASES = [phase_name(phase) for phase in EXCLUSIVE_PHASES]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSample:
    """One job, its latest attempt in memory, as it is published; nothing in it changes."""

    job: str
    state: str
    world_size: int
    report: Json
    ranks: Sequence[Json]
    """The report's totals of each rank that was seen, with node, telemetry, pending_s."""
    ranks_seen: int
    last_step: int
    open_findings: tuple[Json, ...]
    steps: HistogramRow | None = None
    drained_nodes: Mapping[str, float] = field(default_factory=dict)
    """What draining a node gives back, as a share of the time."""
    recoverable_ratio: float | None = None
    phase_ns: Int64Array | None = None
    """(R, 7), in the order of ``EXCLUSIVE_PHASES``."""
    transfers: tuple[TransferFigures, ...] = ()
    fresh_wall_ns: int = 0
    """Telemetry of a rank that was last heard of before is not of now."""


def named_ranks(job: JobSample) -> list[int]:
    """Return the ranks that findings name, the costliest finding first."""
    return [rank for finding in job.report["findings"] for rank in finding["ranks"]]


def job_rows(job: JobSample, chosen: Sequence[int], rank_limit: int) -> Rows:
    """Return the rows of a job that change with its report only.

    Args:
        job: what is known of it.
        chosen: ranks with series of their own, ascending.
        rank_limit: most ranks, of which other limits follow.
    """
    rows = Rows()
    _whole(rows.values, job, len(chosen))
    _flags(rows.values, job, rank_limit)
    _nodes(rows.values, job)
    by_rank = {row["rank"]: row for row in job.ranks}
    shown = [by_rank[rank] for rank in chosen if rank in by_rank]
    _ranks(rows.values, job, shown)
    _pending(rows.values, job, set(chosen))
    if job.state == "running":
        _telemetry(rows.values, job, shown, max(rank_limit // RANKS_PER_NODE, LEAST_NODES))
    _transfers(rows, job)
    if job.steps is not None:
        rows.histograms[metrics.STEP_SECONDS][(job.job,)] = job.steps
    return rows


def finding_costs(job: JobSample) -> dict[tuple[str, str], float]:
    """Return what the findings cost so far by kind and cause, seconds."""
    cost: dict[tuple[str, str], float] = defaultdict(float)
    for finding in job.report["findings"]:
        cost[finding["kind"], finding["cause"]] += finding["wasted_gpu_s"] or 0.0
    return dict(cost)


def _whole(values: Values, job: JobSample, shown: int) -> None:
    name, report = (job.job,), job.report
    values[metrics.JOB_RANKS][job.job, job.state] = job.ranks_seen
    values[metrics.JOB_LAST_STEP][name] = job.last_step
    values[metrics.JOB_WORLD_SIZE][name] = job.world_size
    values[metrics.JOB_RANK_SERIES][name] = shown
    values[metrics.JOB_VERDICT][job.job, report["verdict"]] = 1.0
    if job.recoverable_ratio is not None:
        values[metrics.JOB_RECOVERABLE_RATIO][name] = job.recoverable_ratio
    for metric, key in _RATIOS:
        if report.get(key) is not None:
            values[metric][name] = float(report[key])
    _expected(values, job)
    for metric, key in _JOB_TIMES:
        values[metric][name] = sum(row.get(key, 0) for row in job.ranks) / 1e9


def _expected(values: Values, job: JobSample) -> None:
    """Add expected and observed step, once they are known."""
    block = job.report.get("expected") or {}
    if block.get("expected_step_s") is None:
        return
    values[metrics.JOB_EXPECTED_STEP_SECONDS][(job.job,)] = block["expected_step_s"]
    values[metrics.JOB_OBSERVED_STEP_SECONDS][(job.job,)] = block["observed_step_s"]
    for part, lost_s in block["gap_parts_s"].items():
        if lost_s is not None:
            values[metrics.JOB_STEP_GAP_SECONDS][job.job, part] = lost_s


def _flags(values: Values, job: JobSample, rank_limit: int) -> None:
    """Add what findings name, as long as they go on."""
    ranks = values[metrics.RANK_FLAGGED]
    links = values[metrics.LINK_FLAGGED]
    for finding in job.open_findings:
        what = (finding["kind"], finding["cause"])
        values[metrics.JOB_FINDING][(job.job, *what)] = 1.0
        for node in finding["nodes"]:
            values[metrics.NODE_FLAGGED][(job.job, node, *what)] = 1.0
        for rank in finding["ranks"]:
            if len(ranks) < rank_limit:
                ranks[(job.job, str(rank), *what)] = 1.0
        for source, destination in finding["links"]:
            if len(links) < MAX_LINKS:
                links[job.job, str(source), str(destination)] = 1.0


def _nodes(values: Values, job: JobSample) -> None:
    totals: dict[str, list[int]] = {}
    for row in job.ranks:
        node = row.get("node")
        if not node:
            continue
        sums = totals.setdefault(node, [0] * len(_NODE_TIMES))
        for at, (_, key) in enumerate(_NODE_TIMES):
            sums[at] += row.get(key, 0)
    for at, (metric, _) in enumerate(_NODE_TIMES):
        values[metric].update({(job.job, node): ns[at] / 1e9 for node, ns in totals.items()})
    values[metrics.NODE_RECOVERABLE_RATIO].update(
        {(job.job, node): ratio for node, ratio in job.drained_nodes.items()}
    )


def _ranks(values: Values, job: JobSample, shown: Sequence[Json]) -> None:
    labels = [(job.job, str(row["rank"])) for row in shown]
    for metric, key in _RANK_TIMES:
        values[metric].update(
            {label: row.get(key, 0) / 1e9 for label, row in zip(labels, shown, strict=True)}
        )
    arrivals = sum(row.get("last_arriver", 0) for row in job.ranks)
    if arrivals:
        values[metrics.RANK_LATENESS_RATIO].update(
            {
                label: row.get("last_arriver", 0) / arrivals
                for label, row in zip(labels, shown, strict=True)
            }
        )
    for label, row in zip(labels, shown, strict=True):
        if row["node"]:
            values[metrics.RANK_INFO][(*label, row["node"])] = 1.0
    if job.phase_ns is not None:
        known = [number for number in range(len(_PHASES)) if job.phase_ns[:, number].any()]
        by_phase = values[metrics.RANK_PHASE_SECONDS]
        for label, row in zip(labels, shown, strict=True):
            times_ns = job.phase_ns[row["rank"]].tolist()
            for number in known:
                by_phase[(*label, _PHASES[number])] = times_ns[number] / 1e9


def _pending(values: Values, job: JobSample, chosen: set[int]) -> None:
    """Add the ages of what ranks wait in: of the chosen ones, and of those that wait longest."""
    if job.state == "ended":
        return
    ages = {row["rank"]: row.get("pending_s") or 0.0 for row in job.ranks}
    others = [rank for rank, age_s in ages.items() if age_s and rank not in chosen]
    others.sort(key=lambda rank: (-ages[rank], rank))
    values[metrics.INFLIGHT_AGE_SECONDS].update(
        {
            (job.job, str(rank)): ages[rank]
            for rank in [*sorted(chosen & ages.keys()), *others[:OLDEST_PENDING]]
        }
    )


def _telemetry(values: Values, job: JobSample, shown: Sequence[Json], most_nodes: int) -> None:
    for row in shown:
        if told := _told(row, job):
            rank_telemetry(values, job.job, str(row["rank"]), told)
    of_shown = {row["node"] for row in shown}
    nodes: set[str] = set()
    for row in job.ranks:
        node = row.get("node")
        if not node or node in nodes or node not in of_shown or len(nodes) >= most_nodes:
            continue
        if (told := _told(row, job)) and tells_of_node(told):
            nodes.add(node)
            node_telemetry(values, job.job, node, told)


def _told(row: Json, job: JobSample) -> Mapping[str, object]:
    """Return the telemetry of a rank, empty where it has none of now."""
    if (row.get("last_seen_wall_ns") or 0) < job.fresh_wall_ns:
        return {}
    return (row.get("telemetry") or {}).get("values") or {}


def _transfers(rows: Rows, job: JobSample) -> None:
    for one in job.transfers:
        labels = (job.job, one.group, one.op)
        rows.histograms[metrics.COLLECTIVE_TRANSFER_SECONDS][labels] = histogram_row(
            TRANSFER_BOUNDS_S, one.buckets, one.sum_ns / 1e9
        )
        if one.busbw_bytes_per_s is not None:
            rows.values[metrics.COLLECTIVE_BUSBW][labels] = one.busbw_bytes_per_s
        if one.alpha_ns is not None:
            rows.values[metrics.COLLECTIVE_ALPHA_SECONDS][labels] = one.alpha_ns / 1e9
        if one.beta_ns_per_byte:
            rows.values[metrics.COLLECTIVE_BETA][labels] = 1e9 / one.beta_ns_per_byte
        if one.residual_ratio is not None and math.isfinite(one.residual_ratio):
            rows.values[metrics.COLLECTIVE_RESIDUAL_RATIO][labels] = one.residual_ratio


_RATIOS = (
    (metrics.JOB_SLOWDOWN_RATIO, "slowdown"),
    (metrics.JOB_IDLE_RATIO, "idle_ratio"),
    (metrics.JOB_GAMMA_RATIO, "gamma"),
)
_Times = tuple[tuple[Metric, str], ...]
_JOB_TIMES: _Times = (
    (metrics.JOB_SELF_SECONDS, "self_ns"),
    (metrics.JOB_WAIT_SECONDS, "wait_ns"),
    (metrics.JOB_EXPOSED_COMM_SECONDS, "exposed_comm_ns"),
    (metrics.JOB_WASTED_GPU_SECONDS, "blamed_wait_ns"),
)
_NODE_TIMES: _Times = (
    (metrics.NODE_SELF_SECONDS, "self_ns"),
    (metrics.NODE_WAIT_SECONDS, "wait_ns"),
    (metrics.NODE_CAUSED_WAIT_SECONDS, "caused_wait_ns"),
    (metrics.NODE_WASTED_GPU_SECONDS, "blamed_wait_ns"),
)
_RANK_TIMES: _Times = (
    (metrics.RANK_SELF_SECONDS, "self_ns"),
    (metrics.RANK_WAIT_SECONDS, "wait_ns"),
    (metrics.RANK_EXPOSED_COMM_SECONDS, "exposed_comm_ns"),
    (metrics.RANK_CAUSED_WAIT_SECONDS, "caused_wait_ns"),
    (metrics.RANK_WASTED_GPU_SECONDS, "blamed_wait_ns"),
)
