"""Everyone slower than the job's own past: uniform slowdown (docs/math/kinds.md)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Phase, RecordKind
from paceline_service.analysis.causes.watch import CauseWatch
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.evidence.edetector import steps_between_false_alarms
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.normal import normal_quantile
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.report import Finding
from paceline_service.analysis.scores import spread
from paceline_service.analysis.sets import distinct

if TYPE_CHECKING:
    from paceline_service.analysis.kinds.uniform_cause import UniformCause

MAX_RANKS = 4096
"""So many ranks, evenly spread, tell how fast all are."""
LEARNING_STEPS = 30
REFERENCE_STEPS = 512
"""The past that later steps are compared with; then it is frozen, or it would learn a creeping
slowdown."""
RECENT_STEPS = 512
LEAST_SHIFT = 0.03
"""Log units. Within a run the speed of all ranks wanders by 1 to 3 % (DETECTION section 4)."""
SPREADS = 2.0
"""A shift must also be twice what all ranks share from step to step."""
LASTING_STEPS = 10
CHANGED_STEPS = 10
"""After so many steps of another make (more collectives, fewer ranks) the past no longer counts."""
CLOSING_STEPS = 20
MAX_EPISODES = 16
DELTAS = (1.0, 2.0)
_QUANTILE = 0.25
"""Three of four ranks must be slower: half of them may be a pipeline stage or a rack."""
_LEAST_NS = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moment:
    step: int
    level: float
    """Log of the ranks' own time over that of the first steps."""
    self_ns: float
    """Of all ranks together."""
    duration_ns: float
    phase_ns: FloatArray
    """(7,) median over the ranks."""


@dataclass(slots=True)
class _Slow:
    """One stretch in which everyone was slow."""

    first_step: int
    last_step: int
    base: float
    before_ns: FloatArray
    """(7,) per phase before it began."""
    open: bool = True
    steps: int = 0
    excess_ns: float = 0.0
    """Of all ranks together."""
    lost_ns: float = 0.0
    """Of the job's time."""
    duration_ns: float = 0.0
    levels: float = 0.0
    phase_ns: FloatArray | None = None

    def add(self, moment: _Moment) -> None:
        """Add a step."""
        share = 1 - float(np.exp(min(self.base - moment.level, 0.0)))
        self.steps += 1
        self.last_step = moment.step
        self.excess_ns += share * moment.self_ns
        self.lost_ns += share * float(moment.phase_ns.sum())
        self.duration_ns += moment.duration_ns
        self.levels += moment.level - self.base
        summed = np.zeros(len(moment.phase_ns)) if self.phase_ns is None else self.phase_ns
        self.phase_ns = summed + moment.phase_ns


class UniformSlowdown:
    """Compares the own time of all ranks with that of the job's first steps.

    Args:
        world_size: R.
        options: the rate of false alarms that is allowed.
        watch: telemetry, for a cause that all share.
    """

    def __init__(self, world_size: int, options: Options, watch: CauseWatch) -> None:
        self._options = options
        self._ranks = distinct(
            np.linspace(0, world_size - 1, min(world_size, MAX_RANKS)).astype(np.int64)
        )
        self._watch = watch
        self._slow: list[_Slow] = []
        self._make: tuple[int, ...] = ()
        self._other_make: tuple[tuple[int, ...], int] = ((), 0)
        self._seen_ns = 0.0
        self._forget()

    def _forget(self) -> None:
        """Begin a past anew."""
        self._learning: list[FloatArray] = []
        self._level: FloatArray | None = None
        self._reference: list[float] = []
        self._sorted = np.zeros(0)
        self._rho = 0.0
        self._before = np.nan
        self._evidence = np.zeros(len(DELTAS))
        self._recent: deque[_Moment] = deque(maxlen=RECENT_STEPS)
        self._learning_ns = 0.0
        self._alarm = np.inf

    def see(self, step: JudgedStep) -> None:
        """Take the next step."""
        self._seen_ns += step.row.duration_ns
        if np.isnan(step.note.scores).all():
            return
        make = _make_of(step)
        if make != self._make:
            known, count = self._other_make
            self._other_make = (make, count + 1 if make == known else 1)
            if self._make and self._other_make[1] < CHANGED_STEPS:
                return  # an evaluation, a checkpoint, a step that failed
            self._make, self._other_make = make, ((), 0)
            self._close_all()
            self._forget()
        row = step.row
        own = row.self_ns[self._ranks].astype(np.float64)
        logs = np.where(own >= 0, np.log(np.maximum(own, _LEAST_NS)), np.nan)
        if self._level is None:
            self._learning.append(logs)
            self._learning_ns += row.duration_ns
            if len(self._learning) == LEARNING_STEPS:
                self._begin()
            return
        level = _quantile(logs - self._level)
        if level is None:
            return
        here = row.present[self._ranks]
        moment = _Moment(
            step=row.step,
            level=level,
            self_ns=float(np.maximum(row.self_ns, 0).sum()),
            duration_ns=float(row.duration_ns),
            phase_ns=median_of(row.phase_self_ns[self._ranks][here], axis=0).astype(np.float64),
        )
        self._bet(level)
        self._recent.append(moment)
        self._follow(moment)

    def findings(self, facts: JobFacts) -> list[Finding]:
        """Return each stretch in which everyone was slow."""
        least = facts.options.material_ratio
        return [
            self._finding(slow, facts)
            for slow in self._slow
            if slow.lost_ns >= least * slow.duration_ns
            # What is over has to have cost the job something; what goes on still may.
            and (slow.open or slow.lost_ns >= least * self._seen_ns)
        ]

    def notes(self, facts: JobFacts) -> list[str]:
        """Return nothing."""
        return []

    def _begin(self) -> None:
        table = np.stack(self._learning)
        self._alarm = steps_between_false_alarms(
            self._options.false_namings_per_month, self._learning_ns / len(table) / 1e9, channels=1
        )
        self._learning.clear()
        self._level = np.full(table.shape[1], np.nan)
        known = ~np.isnan(table).all(axis=0)
        values = table[:, known]
        complete = not np.isnan(values).any()
        self._level[known] = median_of(values, axis=0) if complete else np.nanmedian(values, axis=0)
        levels = [one for one in (_quantile(logs - self._level) for logs in table)
                  if one is not None]  # fmt: skip
        series = np.array(levels)
        if len(series) > 2 and series[:-1].std() > 0 and series[1:].std() > 0:
            correlation = float(np.corrcoef(series[:-1], series[1:])[0, 1])
            self._rho = float(np.clip(correlation, 0.0, 0.9))
        for level in levels:
            self._whiten(level)

    def _whiten(self, level: float) -> float | None:
        """Return what is new in ``level``, and let it join the past while that still grows."""
        fresh = level - self._rho * self._before
        self._before = level
        if np.isnan(fresh):
            return None
        if len(self._reference) < REFERENCE_STEPS:
            self._reference.append(fresh)
            self._sorted = np.insert(self._sorted, np.searchsorted(self._sorted, fresh), fresh)
        return fresh

    def _bet(self, level: float) -> None:
        """Place the step among the past: of exchangeable steps every place is as likely."""
        calm = self._evidence.mean() < np.sqrt(self._alarm)
        past = self._sorted
        before = self._before
        fresh = level - self._rho * before
        if calm:
            self._whiten(level)
        else:
            self._before = level
        if np.isnan(fresh) or not len(past):
            return
        low = np.searchsorted(past, fresh, side="left")
        high = np.searchsorted(past, fresh, side="right")
        place = ((low + high) / 2 + 0.5) / (len(past) + 1)
        deviation = normal_quantile(float(place))
        for index, delta in enumerate(DELTAS):
            weight = np.exp(delta * deviation - delta**2 / 2)
            self._evidence[index] = min((1 + self._evidence[index]) * weight, 1e250)

    def _follow(self, moment: _Moment) -> None:
        slow = self._slow[-1] if self._slow and self._slow[-1].open else None
        if slow is not None:
            slow.add(moment)
            newest = [one.level for one in list(self._recent)[-CLOSING_STEPS:]]
            half = slow.base + slow.levels / max(slow.steps, 1) / 2
            if len(newest) == CLOSING_STEPS and median_of(newest) < half:
                slow.open = False
                self._evidence[:] = 0.0
            return
        if self._evidence.mean() < self._alarm:
            return
        told = self._slow[-1].last_step if self._slow else -1
        moments = [one for one in self._recent if one.step > told]  # no step is told twice
        if len(moments) < LASTING_STEPS:
            return
        levels = np.array([one.level for one in moments])
        base = median_of(self._reference) / max(1 - self._rho, 0.1)
        noise = spread(np.array(self._reference))
        onset = _onset(levels - base)
        after = levels[onset:]
        shift = median_of(after) - base
        if len(after) < LASTING_STEPS or shift < max(LEAST_SHIFT, SPREADS * noise):
            return
        before = np.array([one.phase_ns for one in moments[max(onset - RECENT_STEPS, 0) : onset]])
        slow = _Slow(
            first_step=moments[onset].step,
            last_step=moment.step,
            base=base,
            before_ns=median_of(before, axis=0) if len(before) else np.zeros(0),
        )
        for one in moments[onset:]:
            slow.add(one)
        self._slow = [*self._slow[-MAX_EPISODES + 1 :], slow]

    def _close_all(self) -> None:
        for slow in self._slow:
            slow.open = False

    def _finding(self, slow: _Slow, facts: JobFacts) -> Finding:
        why = self._cause(slow, facts)
        shift = slow.levels / max(slow.steps, 1)
        slowdown = float(np.exp(shift))
        ranks = facts.world_size
        return Finding(
            kind="uniform_slowdown",
            ranks=[],
            nodes=[],
            cause=why.cause,
            phase=why.phase,
            first_step=slow.first_step,
            last_step=slow.last_step,
            slowdown=slowdown,
            recoverable_ratio=min(slow.lost_ns / slow.duration_ns, 1.0) if slow.duration_ns else 0,
            wasted_gpu_s=slow.excess_ns / 1e9,
            confidence=None,
            evidence=[
                f"three of four of the {ranks} ranks needed {slowdown:.2f} times the own time per "
                f"step that they needed before step {slow.first_step}, over {slow.steps} steps",
                "no rank is behind the others: all became slower together",
                *why.sentences,
                *([] if slow.open else [f"it was over after step {slow.last_step}"]),
            ],
            action=why.action,
        )

    def _cause(self, slow: _Slow, facts: JobFacts) -> UniformCause:
        # Only imported where there is something to explain: starting is most of a small answer.
        from paceline_service.analysis.kinds.uniform_cause import cause_of

        after = slow.phase_ns / slow.steps if slow.phase_ns is not None and slow.steps else None
        span = slow.last_step - slow.first_step + 1
        past = (max(slow.first_step - max(span, LEARNING_STEPS), 0), slow.first_step - 1)
        return cause_of(
            self._watch, facts.world_size, before_ns=slow.before_ns, after_ns=after, past=past,
            now=(slow.first_step, slow.last_step),
        )  # fmt: skip


def _make_of(step: JudgedStep) -> tuple[int, ...]:
    """Return what a step consists of: collectives, passes forward per rank, ranks."""
    table = step.table
    forward = (table.kind == RecordKind.PHASE) & (table.code == Phase.FORWARD)
    present = int(step.row.present.sum())
    return len(step.matches.first), round(int(forward.sum()) / max(present, 1)), present


def _quantile(relative: FloatArray) -> float | None:
    known = relative[~np.isnan(relative)]
    if len(known) < 2:
        return None
    return float(np.partition(known, int(_QUANTILE * (len(known) - 1)))[
        int(_QUANTILE * (len(known) - 1))
    ])  # fmt: skip


def _onset(excess: FloatArray) -> int:
    """Return where a shift began: the largest tail sum above half of it (Hinkley 1970)."""
    begin = max(len(excess) - LASTING_STEPS, 0)
    for _ in range(3):
        half = max(median_of(excess[begin:]) / 2, 0.0)
        tail = np.cumsum((np.clip(excess, -2 * half, 2 * half) - half)[::-1])[::-1]
        begin = int(np.argmax(tail))
    return begin
