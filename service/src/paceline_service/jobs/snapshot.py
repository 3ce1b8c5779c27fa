"""What the engine publishes about an attempt: immutable, so that every thread may read it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from paceline_service.analysis.network.series import TransferFigures
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.whatif.drain import Drain
from paceline_service.jobs.details import Details
from paceline_service.jobs.steps import RecentSteps, Step
from paceline_service.store.frames import AttemptRef

Json = dict[str, Any]
RUNNING, SILENT, ENDED = "running", "silent", "ended"
RUNNING_WINDOW_S = 15.0
"""A job whose last frame is older than this is silent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTotals:
    """Durations of all analysed steps as a cumulative histogram, for /metrics."""

    buckets: tuple[int, ...] = ()
    count: int = 0
    sum_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What is shown in /metrics and nowhere else; not kept in the store.

    ``phase_ns`` is the own time of each rank by phase, (R, 7), in the order of
    ``EXCLUSIVE_PHASES``.
    """

    phase_ns: Int64Array
    transfers: tuple[TransferFigures, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of one attempt at one moment."""

    attempt: AttemptRef
    state: str
    report: Json
    report_json: bytes
    ranks: list[Json]
    groups: list[Json]
    nodes: dict[str, str]
    last_seen_wall_ns: int
    last_step: int
    ranks_seen: int
    frame_id: int
    """The newest frame that is taken into account; 0 when an earlier one came too late to be."""
    step_totals: StepTotals = field(default_factory=StepTotals)
    recent: RecentSteps | None = None
    drain: Drain | None = None
    figures: Figures | None = None

    @property
    def verdict(self) -> str:
        """The verdict of the report."""
        return str(self.report["verdict"])

    @property
    def headline(self) -> str:
        """The report in one sentence."""
        return str(self.report["job"]["headline"])

    @property
    def slowdown(self) -> float | None:
        """The slowdown of the report."""
        slowdown = self.report["slowdown"]
        return None if slowdown is None else float(slowdown)

    @property
    def steps(self) -> int:
        """How many steps were analysed."""
        return int(self.report["job"]["steps"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """The analysis of one attempt written down, as it was after ``frame_id``."""

    attempt_id: int
    frame_id: int
    body: bytes
    packed: bool
    """Whether it is compressed already."""
    made_wall_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """A new snapshot with the steps that became complete since the one before."""

    snapshot: Snapshot
    steps: tuple[Step, ...]
    changed: bool
    """Whether the report differs from the one published before."""
    checkpoint: Captured | None = None
    """To be stored with the steps and the state, in one transaction."""
    details: Details = field(default_factory=Details)


def pack_state(snapshot: Snapshot) -> bytes:
    """Return what the store keeps of a snapshot."""
    state = {
        "state": snapshot.state,
        "report": snapshot.report,
        # Telemetry of now says nothing later; what was sampled is in the frames.
        "ranks": [{**row, "telemetry": None} for row in snapshot.ranks],
        "groups": snapshot.groups,
        "nodes": snapshot.nodes,
        "last_seen_wall_ns": snapshot.last_seen_wall_ns,
        "last_step": snapshot.last_step,
        "ranks_seen": snapshot.ranks_seen,
        "drain": _drain_state(snapshot.drain),
    }
    return zlib.compress(msgspec.json.encode(state), 6)


def unpack_state(attempt: AttemptRef, blob: bytes, frame_id: int) -> Snapshot:
    """Return the snapshot that was kept; its recent steps are in the store."""
    state = msgspec.json.decode(zlib.decompress(blob))
    drain = state.pop("drain", None)  # absent from what earlier versions kept
    return Snapshot(
        attempt=attempt,
        report_json=msgspec.json.encode(state["report"]),
        frame_id=frame_id,
        drain=_drain_of(drain) if drain else None,
        **state,
    )


def _drain_state(drain: Drain | None) -> Json | None:
    """Return what is kept of it: sums, and not the single steps, which are only in memory."""
    if drain is None:
        return None
    return {
        "steps": drain.steps,
        "first_step": drain.first_step,
        "last_step": drain.last_step,
        "duration_ns": drain.duration_ns,
        "ranks": {str(rank): ns for rank, ns in drain.ranks.items()},
        "nodes": dict(drain.nodes),
    }


def _drain_of(state: Json) -> Drain:
    ranks = {int(rank): ns for rank, ns in state.pop("ranks").items()}
    return Drain(ranks=ranks, **state)
