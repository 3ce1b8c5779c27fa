"""Types of the expected step and of what was fitted for it (docs/math/calibration.md)."""

from __future__ import annotations

from typing import TypedDict


class GapParts(TypedDict):
    """The observed step less the expected one, by what it comes from; seconds per step."""

    straggler: float
    network: float | None
    imbalance: float
    host: float
    slowdown: float
    unexplained: float


class ExpectedStep(TypedDict):
    """The step that healthy ranks would take (docs/math/calibration.md); null: not known."""

    steps: int | None
    observed_step_s: float | None
    expected_step_s: float | None
    expected_step_interval_s: list[float] | None
    gap_s: float | None
    gap_ratio: float | None
    compute_s: float | None
    barrier_s: float | None
    communication_s: float | None
    gap_parts_s: GapParts | None
    communication_modelled_ratio: float | None
    communication_reason: str | None
    reason: str | None


class ComputeRow(TypedDict):
    """What the ranks of one peer group need by themselves."""

    ranks: str
    members: int
    compute_s: float
    compute_interval_s: list[float]


class TransferRow(TypedDict):
    """Alpha and beta of one process group and operation."""

    group: str
    op: str
    links: list[list[int]]
    members: int
    sizes: int
    largest_bytes: int
    alpha_s: float | None
    alpha_interval_s: list[float] | None
    beta_s_per_byte: float | None
    beta_interval_s_per_byte: list[float] | None
    latency_s: float | None
    bandwidth_bytes_per_s: float | None
    bandwidth_interval_bytes_per_s: list[float | None] | None
    reason: str | None


class Calibration(TypedDict):
    """Compute and transfers of a job, fitted, with 95 % intervals."""

    compute: list[ComputeRow]
    transfers: list[TransferRow]
    flops_per_step: float | None
    flops_per_s_per_rank: float | None
    flops_interval_per_s_per_rank: list[float] | None


class Expected(TypedDict):
    """Expected against observed step time, and the fits behind it."""

    job: str
    attempt: int
    expected: ExpectedStep | None
    calibration: Calibration | None
