"""``paceline.report/1`` as types for the OpenAPI document (docs/report.md, analysis/report.py)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

Kind = Literal[
    "hang", "desync", "straggler", "communication", "communication_bound", "imbalance",
    "stage_imbalance", "uniform_slowdown",
]  # fmt: skip
Verdict = Kind | Literal["healthy", "insufficient_evidence"]
Cause = Literal["gpu_throttle", "gpu_fault", "compute", "input", "host", "gc", "network", "unknown"]
EXAMPLE: dict[str, Any] = {
    "kind": "straggler", "ranks": [5], "nodes": ["node-a"], "cause": "gpu_throttle",
    "phase": "backward", "first_step": 210, "last_step": 499, "slowdown": 1.25,
    "recoverable_ratio": 0.12, "wasted_gpu_s": 91.7, "confidence": 0.999,
    "evidence": ["rank 5 takes 1.25 times as long in backward as its peers since step 210"],
    "action": "scontrol update nodename=node-a state=drain reason=paceline", "links": [],
    "collective": None, "period_steps": None,
}  # fmt: skip


class Finding(BaseModel):
    """One thing that is wrong: who, why, since when, what it costs, what to do."""

    kind: Kind
    ranks: list[int]
    nodes: list[str]
    cause: Cause
    phase: str | None
    first_step: int | None
    last_step: int | None
    slowdown: float | None
    recoverable_ratio: float | None
    wasted_gpu_s: float | None
    confidence: float | None
    evidence: list[str]
    action: str | None
    links: list[list[int]]
    collective: dict[str, Any] | None
    period_steps: float | None


class ReportJob(BaseModel):
    """What was seen of the job."""

    name: str
    attempt: int
    state: Literal["running", "silent", "ended"]
    headline: str
    world_size: int
    ranks_observed: int
    steps: int
    collectives: int


class ReportData(BaseModel):
    """How complete the data is."""

    complete: bool
    dropped: dict[str, int]
    steps_left_out: int = 0
    notes: list[str]


class ReportRank(BaseModel):
    """Totals of one rank."""

    rank: int
    self_ns: int
    wait_ns: int
    exposed_comm_ns: int
    caused_wait_ns: int
    blamed_wait_ns: int
    last_arriver: int
    cause: Cause | None = None


class GapParts(BaseModel):
    """The observed step less the expected one, by what it comes from; seconds per step."""

    straggler: float
    network: float | None = Field(description="Null: no transfer's size and time are known.")
    imbalance: float
    host: float
    slowdown: float
    unexplained: float


class ExpectedStep(BaseModel):
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
    communication_reason: str | None = Field(description="Why the network's part is null.")
    reason: str | None = Field(description="Why nothing is expected; null: something is.")


class ComputeRow(BaseModel):
    """What the ranks of one peer group need by themselves."""

    ranks: str
    members: int
    compute_s: float
    compute_interval_s: list[float]


class TransferRow(BaseModel):
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
    latency_s: float | None = Field(description="Per message of a ring.")
    bandwidth_bytes_per_s: float | None = Field(description="Out of a rank.")
    bandwidth_interval_bytes_per_s: list[float | None] | None
    reason: str | None


class Calibration(BaseModel):
    """Compute and transfers of the job, fitted, with 95 % intervals."""

    compute: list[ComputeRow]
    transfers: list[TransferRow]
    flops_per_step: float | None
    flops_per_s_per_rank: float | None
    flops_interval_per_s_per_rank: list[float] | None


class Report(BaseModel):
    """``paceline.report/1`` (docs/report.md)."""

    schema_: Literal["paceline.report/1"] = Field(alias="schema")
    job: ReportJob
    verdict: Verdict
    slowdown: float | None
    idle_ratio: float | None
    gamma: float | None
    wasted_gpu_s: float | None
    wasted_gpu_s_by_cause: dict[str, float] = Field(default_factory=dict)
    findings: list[Finding]
    data: ReportData
    what_if: dict[str, Any] | None = None
    expected: ExpectedStep | None = None
    calibration: Calibration | None = None
    ranks: list[ReportRank]
