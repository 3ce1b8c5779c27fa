"""What is kept of each step for judging it later, and how an episode adds it up."""

from __future__ import annotations

from dataclasses import field, replace

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import EXCLUSIVE_PHASES
from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StepNote:
    """One step as the episodes need it; arrays by global rank, times in ns."""

    step: int
    duration_ns: int
    self_ns: Int64Array
    phase_self_ns: Int64Array
    blamed_ns: FloatArray
    last_count: Int64Array
    launch_lag_ns: FloatArray
    """From launch to start of the collectives on the device; NaN where that is not known."""
    on_device: BoolArray
    """Whether the phases are the device's; a host's phases hold its waits for its device."""
    scores: FloatArray

    def with_scores(self, scores: FloatArray) -> StepNote:
        """Return this note with its scores filled in."""
        return replace(self, scores=scores)


def make_note(
    row: StepRow,
    blamed_ns: FloatArray,
    last_count: Int64Array,
    launch_lag_ns: FloatArray,
    on_device: BoolArray,
) -> StepNote:
    """Return the note of a step; the scores follow."""
    return StepNote(
        step=row.step,
        duration_ns=row.duration_ns,
        self_ns=row.self_ns,
        phase_self_ns=row.phase_self_ns,
        blamed_ns=blamed_ns.sum(axis=1),
        last_count=last_count,
        launch_lag_ns=launch_lag_ns,
        on_device=on_device,
        scores=np.full(len(row.self_ns), np.nan),
    )


MAX_LAGS = 64
LASTING_STEPS = 10
"""A stretch shorter than this is a stall and nothing that lasts: with a thousand peers three steps
suffice to know that it was no chance, but not that it will come again."""


@dataclass(slots=True)
class Episode:
    """One stretch in which one rank was slow; the totals are over its steps, ns."""

    rank: int
    first_step: int
    last_step: int
    """The last step that counted."""
    seen_step: int
    """The last step that was looked at while the episode was open."""
    shift: float
    """How much slower in log units (0.22 is a quarter slower)."""
    offset: float
    evidence: float
    confidence: float
    from_start: bool
    open: bool = True
    steps: int = 0
    duration_ns: int = 0
    recoverable_ns: int = 0
    alone_ns: int = 0
    """What it would cost were it the only slow rank; slower ones hide ``recoverable_ns``."""
    blamed_ns: float = 0.0
    wasted_ns: float = 0.0
    """Of what others waited for it, what they would not have waited had it not been slow: without
    it they would have waited for the next slowest."""
    felt_ns: float = 0.0
    """Waits that it is charged with beyond its peers', over all ranks of the job: what each rank
    lost to it on average. Where a step synchronises often, ``alone_ns`` is less than the cost:
    what is lost before one barrier is not made good by being early at the next."""
    last_arrivals: int = 0
    contested: int = 0
    """Collectives in which a last arriver stood out, as ``last_arrivals`` of this rank."""
    phase_excess_ns: FloatArray = field(default_factory=lambda: np.zeros(len(EXCLUSIVE_PHASES)))
    phase_peer_ns: FloatArray = field(default_factory=lambda: np.zeros(len(EXCLUSIVE_PHASES)))
    self_ns: float = 0.0
    peer_self_ns: float = 0.0
    launch_lags_ns: list[float] = field(default_factory=list)
    """Of the newest steps, where known."""
    on_device: bool = False
    period_steps: float | None = None
    """Steps from stall to stall; None when the rank was slow in every step."""
    parts: int = 1
    """Episodes that this one stands for: the oldest of a rank that is often slow are joined."""

    @property
    def end_step(self) -> int:
        """The last slow step; of an open episode the latest one."""
        return self.seen_step if self.open else self.last_step

    @property
    def transient(self) -> bool:
        """Whether it was over too soon to call the rank slow."""
        short = self.steps < LASTING_STEPS and self.parts == 1
        return short and not self.open and self.period_steps is None

    def join(self, later: Episode) -> Episode:
        """Return one episode that stands for this one and a ``later`` one of the same rank."""
        summed = {name: getattr(self, name) + getattr(later, name) for name in _SUMMED}
        return replace(
            later,
            first_step=self.first_step,
            evidence=max(self.evidence, later.evidence),
            confidence=max(self.confidence, later.confidence),
            from_start=self.from_start,
            launch_lags_ns=[*self.launch_lags_ns, *later.launch_lags_ns][-MAX_LAGS:],
            **summed,
        )


_SUMMED = (
    "steps", "duration_ns", "recoverable_ns", "alone_ns", "blamed_ns", "wasted_ns", "felt_ns",
    "last_arrivals", "contested", "phase_excess_ns", "phase_peer_ns", "self_ns", "peer_self_ns",
    "parts",
)  # fmt: skip
