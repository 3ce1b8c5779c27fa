"""The answers about jobs as types: they make the OpenAPI document."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from paceline_service.report_schema import Calibration, Cause, ExpectedStep, Report, Verdict

__all__ = ["Report"]

State = Literal["running", "silent", "ended"]


EXAMPLE: dict[str, Any] = {
    "job": "llm-7b", "run_id": "4711", "attempt": 1, "launch_attempt": 0, "world_size": 64,
    "ranks_seen": 64, "state": "running", "first_seen_wall_ns": 1767225600000000000,
    "last_seen_wall_ns": 1767229200000000000, "steps": 3600, "verdict": "straggler",
    "headline": "Rank 5 is slow in backward since step 210: every step takes 1.25 times as long.",
    "slowdown": 1.25,
}  # fmt: skip


class JobRow(BaseModel):
    """The latest attempt of a job."""

    job: str
    run_id: str
    attempt: int
    launch_attempt: int
    world_size: int
    ranks_seen: int
    state: State
    first_seen_wall_ns: int
    last_seen_wall_ns: int
    steps: int
    verdict: Verdict
    headline: str
    slowdown: float | None


class JobList(BaseModel):
    """Jobs, the newest first."""

    jobs: list[JobRow]
    next: str | None = Field(description="`cursor` of the next page; null: there is none.")


class AttemptRow(BaseModel):
    """One attempt in the list of a job's attempts."""

    attempt: int
    run_id: str
    launch_attempt: int
    first_seen_wall_ns: int
    state: State
    verdict: Verdict


class GroupRow(BaseModel):
    """One process group; ``ranks`` is a rank list such as ``0-7``."""

    name: str
    ranks: str
    epoch: int
    mesh_dim: str
    backend: str


class JobDetail(JobRow):
    """One attempt with its topology."""

    attempts: list[AttemptRow]
    groups: list[GroupRow]
    nodes: dict[str, str]
    expected: ExpectedStep | None = None
    """The block of the report; null: the attempt has none."""


class RankTelemetry(BaseModel):
    """The newest telemetry of a rank (docs/telemetry.md)."""

    time_ns: int
    """On the clock of the rank."""
    time_wall_ns: int | None
    values: dict[str, int | float | str | list[str]]


class RankRow(BaseModel):
    """One rank; the totals are absent until a step of it was analysed."""

    rank: int
    self_ns: int | None = None
    wait_ns: int | None = None
    exposed_comm_ns: int | None = None
    caused_wait_ns: int | None = None
    blamed_wait_ns: int | None = None
    last_arriver: int | None = None
    cause: Cause | None = None
    node: str
    step: int | None
    last_seen_wall_ns: int | None
    ended: str
    dropped: dict[str, int]
    versions: dict[str, str] = Field(default_factory=dict)
    """Of its software: `paceline`, `torch`, `python`, `cuda`, `nccl`, as far as it told them."""
    telemetry: RankTelemetry | None = None
    pending_s: float | None = None
    """Age of the oldest collective that it was in when it was last heard of; null: in none."""


class RankList(BaseModel):
    """The ranks that were seen, in their order."""

    ranks: list[RankRow]
    next: str | None = Field(description="`cursor` of the next page; null: there is none.")


class Expected(BaseModel):
    """Expected against observed step time, and the fits behind it (docs/math/calibration.md)."""

    job: str
    attempt: int
    expected: ExpectedStep | None
    calibration: Calibration | None


class WhatIfCandidate(BaseModel):
    """A single rank or node, and what leaving it out alone would have given back."""

    without: str
    recoverable_ns: int
    recoverable_ratio: float


class WhatIf(BaseModel):
    """What a job would have gained without some ranks (docs/math/whatif.md)."""

    job: str
    attempt: int
    without: list[str]
    ranks: str
    """All ranks that are left out, as a rank list."""
    steps: int
    first_step: int | None
    last_step: int | None
    duration_ns: int
    recoverable_ns: int
    recoverable_ratio: float | None
    at_least: bool
    """More may be recoverable: of some step all ranks that were kept are left out."""
    replay: dict[str, Any] | None
    """The block ``what_if`` of the report."""
    candidates: list[WhatIfCandidate]


class Steps(BaseModel):
    """Steps as columns; null where a rank has no data."""

    job: str
    attempt: int
    ranks: list[int]
    phases: list[str]
    steps: list[int]
    start_wall_ns: list[int | None]
    duration_ns: list[int]
    slowest_rank: list[int | None]
    self_ns: list[list[int | None]]
    wait_ns: list[list[int | None]]
    comm_ns: list[list[int | None]]
    phase_self_ns: list[list[list[int | None]]] | None = None
    next: str | None = Field(
        None, description="`cursor` of the next page: later steps where `from` was given, else "
        "earlier ones; null: there is none."
    )  # fmt: skip


class TraceEvent(BaseModel):
    """One Chrome trace event; times in microseconds."""

    ph: Literal["M", "X", "i", "s", "f"]
    name: str
    pid: int
    tid: int
    ts: float | None = None
    dur: float | None = None
    cat: str | None = None
    id: int | None = None
    s: Literal["t"] | None = None
    bp: Literal["e"] | None = None
    args: dict[str, Any] = Field(default_factory=dict)


class Timeline(BaseModel):
    """A Chrome trace in its object form (docs/api.md)."""

    displayTimeUnit: Literal["ms"]
    otherData: dict[str, Any]
    traceEvents: list[TraceEvent]
