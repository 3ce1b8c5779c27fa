"""What is kept of each step for judging it later, and how an episode adds it up."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.timeline import StepRow


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
    recovery: float = 0.0
    recovering_since: int = -1
    pending: list[StepNote] = field(default_factory=list)
    """Steps that look recovered but are not decided yet."""

    @property
    def end_step(self) -> int:
        """The last slow step; of an open episode the latest one."""
        return self.seen_step if self.open else self.last_step

    def add(self, note: StepNote, peers: Int64Array, slow: set[int]) -> None:
        """Add a step to the totals.

        Args:
            note: the step.
            peers: the ranks that this one may be compared with.
            slow: all ranks that are slow at present, whose slowness may hide this one's.
        """
        rank = self.rank
        own_ns = int(note.self_ns[rank])
        here = peers[(note.self_ns[peers] >= 0) & (peers != rank)]
        if own_ns < 0 or not len(here):
            return
        peer_phase = np.median(note.phase_self_ns[here], axis=0)
        self.steps += 1
        self.last_step = note.step
        self.duration_ns += note.duration_ns
        self.recoverable_ns += int(note.self_ns.max()) - int(np.delete(note.self_ns, rank).max())
        others = np.delete(note.self_ns, list(slow | {rank}))
        self.alone_ns += max(0, own_ns - int(others.max(initial=0)))
        self.blamed_ns += float(note.blamed_ns[rank])
        self.last_arrivals += int(note.last_count[rank])
        self.contested += int(note.last_count.sum())
        self.phase_excess_ns += note.phase_self_ns[rank] - peer_phase
        self.phase_peer_ns += peer_phase
        self.self_ns += own_ns
        self.on_device = bool(note.on_device[rank])
        if note.launch_lag_ns[rank] >= 0:
            self.launch_lags_ns = [*self.launch_lags_ns[-MAX_LAGS + 1 :], note.launch_lag_ns[rank]]
        self.peer_self_ns += float(np.median(note.self_ns[here]))
