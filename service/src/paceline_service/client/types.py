"""What the collector answers, as types (docs/api.md, docs/report.md).

A test compares them with the OpenAPI document.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from paceline_service.client.expected_types import Calibration as Calibration
from paceline_service.client.expected_types import ComputeRow as ComputeRow
from paceline_service.client.expected_types import Expected as Expected
from paceline_service.client.expected_types import ExpectedStep as ExpectedStep
from paceline_service.client.expected_types import GapParts as GapParts
from paceline_service.client.expected_types import TransferRow as TransferRow
from paceline_service.client.notify_types import ActionRow as ActionRow
from paceline_service.client.notify_types import ChannelRow as ChannelRow
from paceline_service.client.notify_types import IncidentNotifications as IncidentNotifications
from paceline_service.client.notify_types import MessageRow as MessageRow
from paceline_service.client.notify_types import ProposalRow as ProposalRow
from paceline_service.client.notify_types import TestAnswer as TestAnswer

FRAMES_CONTENT_TYPE = "application/vnd.paceline.frames"
State = Literal["running", "silent", "ended"]


class _RejectedFrame(TypedDict):
    offset: int
    reason: str


class RejectedFrame(_RejectedFrame, total=False):
    """A frame that was not taken; do not send it again."""

    problem: str
    """``forbidden``: another token could send it."""


class FramesAnswer(TypedDict):
    """What became of posted frames; rejected ones must not be sent again."""

    accepted: int
    duplicate: int
    rejected: list[RejectedFrame]
    settings: list[dict[str, Any]]


class AttemptRow(TypedDict):
    """One attempt in the list of a job's attempts."""

    attempt: int
    run_id: str
    launch_attempt: int
    first_seen_wall_ns: int
    state: State
    verdict: str


class GroupRow(TypedDict):
    """A process group; ``ranks`` is a rank list such as ``0-7``."""

    name: str
    ranks: str
    epoch: int
    mesh_dim: str
    backend: str


class JobRow(TypedDict):
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
    verdict: str
    headline: str
    slowdown: float | None


class _JobDetail(JobRow):
    attempts: list[AttemptRow]
    groups: list[GroupRow]
    nodes: dict[str, str]


class JobDetail(_JobDetail, total=False):
    """One attempt with its topology."""

    expected: ExpectedStep | None


class RankTelemetry(TypedDict):
    """The newest telemetry of a rank."""

    time_ns: int
    time_wall_ns: int | None
    values: dict[str, int | float | str | list[str]]


class _RankTotals(TypedDict, total=False):
    self_ns: int
    wait_ns: int
    exposed_comm_ns: int
    caused_wait_ns: int
    blamed_wait_ns: int
    last_arriver: int
    cause: str | None


class RankRow(_RankTotals):
    """One rank; the totals are absent until a step of it was analysed."""

    rank: int
    node: str
    step: int | None
    last_seen_wall_ns: int | None
    ended: str
    dropped: dict[str, int]
    versions: dict[str, str]
    telemetry: RankTelemetry | None
    pending_s: float | None


class _Steps(TypedDict):
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
    next: str | None


class Steps(_Steps, total=False):
    """Steps as columns; ``phase_self_ns`` is there where phases were asked for."""

    phase_self_ns: list[list[list[int | None]]]


class Finding(TypedDict):
    """One thing that is wrong: who, why, since when, what it costs, what to do."""

    kind: str
    ranks: list[int]
    nodes: list[str]
    cause: str
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


class ReportJob(TypedDict):
    """What was seen of the job."""

    name: str
    attempt: int
    state: State
    headline: str
    world_size: int
    ranks_observed: int
    steps: int
    collectives: int


class _ReportData(TypedDict):
    complete: bool
    dropped: dict[str, int]
    notes: list[str]


class ReportData(_ReportData, total=False):
    """How complete the data is."""

    steps_left_out: int


class ReportRank(TypedDict):
    """Totals of one rank."""

    rank: int
    self_ns: int
    wait_ns: int
    exposed_comm_ns: int
    caused_wait_ns: int
    blamed_wait_ns: int
    last_arriver: int
    cause: str | None


class _Report(TypedDict):
    schema: str
    job: ReportJob
    verdict: str
    slowdown: float | None
    idle_ratio: float | None
    gamma: float | None
    wasted_gpu_s: float | None
    wasted_gpu_s_by_cause: dict[str, float]
    findings: list[Finding]
    data: ReportData
    ranks: list[ReportRank]


class Report(_Report, total=False):
    """``paceline.report/1``; ``what_if`` is absent where nothing was replayed."""

    what_if: dict[str, Any] | None
    expected: ExpectedStep | None
    calibration: Calibration | None


class WhatIfCandidate(TypedDict):
    """A single rank or node, and what leaving it out alone would have given back."""

    without: str
    recoverable_ns: int
    recoverable_ratio: float


class WhatIf(TypedDict):
    """What a job would have gained without some ranks."""

    job: str
    attempt: int
    without: list[str]
    ranks: str
    steps: int
    first_step: int | None
    last_step: int | None
    duration_ns: int
    recoverable_ns: int
    recoverable_ratio: float | None
    at_least: bool
    replay: dict[str, Any] | None
    candidates: list[WhatIfCandidate]


class AcknowledgementView(TypedDict):
    """Somebody knows of an incident."""

    at_wall_ns: int
    by: str
    note: str
    withdrawn_wall_ns: int | None
    withdrawn_by: str


class SilenceView(TypedDict):
    """What alerts leave out; a field that is null covers everything."""

    id: int
    active: bool
    job: str | None
    kind: str | None
    ranks: str | None
    node: str | None
    incident_id: int | None
    created_wall_ns: int
    created_by: str
    note: str
    until_wall_ns: int
    ended_wall_ns: int | None
    ended_by: str | None


class IncidentRow(Finding):
    """A finding with its life."""

    id: int
    job: str
    attempt: int
    open: bool
    opened_wall_ns: int
    updated_wall_ns: int
    closed_wall_ns: int | None
    closed_reason: str | None
    earlier_incidents: int
    acknowledged: AcknowledgementView | None
    silenced: SilenceView | None


class IncidentDetail(IncidentRow):
    """An incident with all that people said about it."""

    acknowledgements: list[AcknowledgementView]


class OffenderRow(TypedDict):
    """A node, or one of its GPUs, that incidents named."""

    node: str
    gpu_uuid: str | None
    incidents: int
    jobs: list[str]
    causes: list[str]
    first_wall_ns: int
    last_wall_ns: int


class Followers(TypedDict):
    """Running ranks by what they do with the settings, each a rank list."""

    follows: str
    waits: str
    missed: dict[str, int]
    silent: str


class JobSettingsView(TypedDict):
    """What a job is to record, from which step on, and who follows."""

    job: str
    attempt: int
    generation: int
    level: str | None
    stride: int | None
    enabled: bool | None
    telemetry_interval_s: float | None
    relief_stride: int
    """What the collector asks for beside it while it cannot follow; 1: nothing."""
    updated_wall_ns: int | None
    updated_by: str | None
    effective_step: int | None
    agreed_wall_ns: int | None
    ranks: Followers


class SettingsChange(TypedDict, total=False):
    """What is to change; what is left out stays as it is."""

    level: str
    stride: int
    enabled: bool
    telemetry_interval_s: float | None


class TokenView(TypedDict):
    """A token, without itself."""

    id: int
    name: str
    scopes: list[str]
    job_prefix: str
    state: Literal["usable", "expired", "revoked"]
    created_wall_ns: int
    created_by: str
    expires_wall_ns: int | None
    revoked_wall_ns: int | None
    last_used_wall_ns: int | None
    requests_per_s: float | None
    bytes_per_s: float | None


class MadeToken(TokenView):
    """The only answer that ever holds a token."""

    token: str


class AuditView(TypedDict):
    """Something that an administrator did."""

    id: int
    at_wall_ns: int
    actor: str
    address: str
    action: str
    target: str
    old: Any
    new: Any
