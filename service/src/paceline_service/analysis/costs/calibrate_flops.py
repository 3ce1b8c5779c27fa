"""How many FLOP/s the ranks of a job reach, where somebody says how many FLOP a step has."""

from __future__ import annotations

from typing import Any

from paceline_service.analysis.costs.calibrate_compute import effective_flops
from paceline_service.analysis.costs.units import positive

_PER_TOKEN = 6.0
"""Per parameter and token, forward and backward (docs/math/costs.md)."""


def flops_of_model(parameters: float, tokens_per_step: float) -> float:
    """Return 6 P b: the FLOP of one step of a transformer, over all ranks."""
    positive(parameters, "parameters", "a count")
    positive(tokens_per_step, "tokens_per_step", "a count")
    return _PER_TOKEN * parameters * tokens_per_step


def with_flops(
    calibration: dict[str, Any], world_size: int, flops_per_step: float
) -> dict[str, Any]:
    """Return the block ``calibration`` of a report with R, the FLOP/s of a rank.

    R is over the own time of a rank, its host and its input included: no wait, no transfer.

    Args:
        calibration: as in the report.
        world_size: ranks of the job, which share the step's FLOP evenly.
        flops_per_step: of the whole job.
    """
    positive(flops_per_step, "flops_per_step", "FLOP in one step of the whole job")
    rows = calibration.get("compute") or []
    members = sum(int(row["members"]) for row in rows)
    if not members:
        return {**calibration, "flops_per_step": flops_per_step}

    def mean(values: list[float]) -> float:
        weighted = (row["members"] * value for row, value in zip(rows, values, strict=True))
        return float(sum(weighted)) / members

    compute_s = mean([row["compute_s"] for row in rows])
    if compute_s <= 0:
        return {**calibration, "flops_per_step": flops_per_step}
    interval_s = (
        mean([row["compute_interval_s"][0] for row in rows]),
        mean([row["compute_interval_s"][1] for row in rows]),
    )
    rate, low, high = effective_flops(flops_per_step, world_size, interval_s, compute_s)
    return {
        **calibration,
        "flops_per_step": flops_per_step,
        "flops_per_s_per_rank": float(f"{rate:.6g}"),
        "flops_interval_per_s_per_rank": [float(f"{low:.6g}"), float(f"{high:.6g}")],
    }
