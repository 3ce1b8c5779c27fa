"""Telemetry of a simulated job: samples on each rank's own clock, with one sick among them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline.event_log import LogTelemetry
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.job import ROW_FIELDS, Simulated

_START, _STEP = ROW_FIELDS.index("start_ns"), ROW_FIELDS.index("step")
HEALTHY: dict[str, Any] = {
    "sm_clock_hz": 1.9e9, "throttle_reasons": [], "temperature_c": 62, "power_w": 640.0,
    "gpu_busy_ratio": 0.98, "pcie_width_lanes": 16, "max_pcie_width_lanes": 16,
    "pcie_generation": 5, "ecc_uncorrected_total": 0,
}  # fmt: skip


def samples(
    job: Simulated, sick: Mapping[int, Mapping[str, Any]], *, first: int = 0, every: int = 1
) -> list[LogTelemetry]:
    """Return a sample of each rank at every so-manieth step.

    Args:
        job: the simulated job.
        sick: by rank, what its samples say instead, from step ``first`` on.
        first: see ``sick``.
        every: steps between samples.
    """
    out = []
    for rank, rows in enumerate(job.rows):
        begun: dict[int, int] = {}
        for row in rows:
            begun.setdefault(row[_STEP], row[_START])
        for step, start_ns in sorted(begun.items()):
            if step % every:
                continue
            ill = sick.get(rank, {}) if step >= first else {}
            values = {**HEALTHY, **ill}
            grown = {n: v * (step - first + 1) for n, v in ill.items() if n.endswith("_total")}
            out.append(
                LogTelemetry(rank=rank, time_ns=start_ns + 1_000_000, values={**values, **grown})
            )
    return out


def analyse_with(
    job: Simulated, told: list[LogTelemetry], *, nodes: int = 2, options: Options | None = None
) -> JobAnalysis:
    """Analyse a job with its telemetry."""
    size = len(job.rows)
    analysis = JobAnalysis(size, options)
    for name, ranks in job.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank in range(size):
        analysis.declare_rank(
            rank, node=f"node-{rank * nodes // size}", clock_domain=job.clocks[rank]
        )
    for sample in told:
        analysis.add_telemetry(sample.rank, [sample])
    for rank, rows in enumerate(job.rows):
        analysis.add(records_from_rows(rank, rows))
    analysis.finish()
    return analysis
