"""What a log without the times of every rank tells: levels, spreads, outliers, who was named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field
from statistics import median

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.evidence.level_shift import LevelShift, level_shifts
from paceline_service.analysis.scores import spread
from paceline_service.importers.timing_logs.series import Report
from paceline_service.importers.timing_logs.timers import leaves, less_parts, phase_of

SETTLING_ITERATIONS = 5
OUTLIER_RATIO = 1.5
OUTLIER_SPREADS = 8.0
"""An iteration is told as one of its own when it is both; noise passes neither."""
MATERIAL_RATIO = 1.03
MAX_OUTLIERS = 1000
Pick = Callable[[Report], dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """A timer at a change: medians before and after it, ms per iteration."""

    timer: str
    before_ms: float
    after_ms: float

    @property
    def grown_ms(self) -> float:
        """After less before."""
        return self.after_ms - self.before_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Iterations take another time from ``iteration`` on."""

    iteration: int
    last_iteration: int
    before_ms: float
    after_ms: float
    chance: float
    work: tuple[str, float, float] | None
    """What of an iteration's work changed as well, in words, before and after."""
    single: list[Growth]
    least: list[Growth]
    most: list[Growth]

    @property
    def ratio(self) -> float:
        """After over before."""
        return self.after_ms / self.before_ms

    @property
    def grown_ms(self) -> float:
        """After less before."""
        return self.after_ms - self.before_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A timer across ranks: medians of its least and its largest, ms per iteration."""

    timer: str
    phase: str | None
    least_ms: float
    most_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """One report that took far longer than those around it."""

    iteration: int
    step_ms: float
    why: str
    """What the log says happened before it; empty where it says nothing."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """What one attempt tells."""

    kind: str
    first: int
    last: int
    each: int
    """Iterations that a report is the average over, mostly."""
    reports: int
    median_ms: float
    settled: list[Report] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    outliers: list[Outlier] = field(default_factory=list)
    spreads: list[Spread] = field(default_factory=list)
    skipped: int = 0
    relative: bool = False
    tflops: float | None = None
    """Throughput per GPU, TFLOP/s, where the log has it."""
    resolved: bool = False
    """Whether the times of every rank are records."""
    single: dict[str, float] = field(default_factory=dict)
    """Medians of the timers of one rank, ms per iteration."""
    single_rank: int | None = None
    """Whose timers the log has, where it has those of one rank; -1 where it does not say."""


def facts_of(reports: Sequence[Report]) -> Facts:
    """Return what the reports of one attempt tell; there is at least one."""
    covers = Counter(report.covers for report in reports)
    each = covers.most_common(1)[0][0]
    settled = _settled(reports)
    facts = Facts(
        kind=reports[0].kind, first=reports[0].iteration, last=reports[-1].iteration, each=each,
        reports=len(reports), median_ms=median(r.step_ms for r in settled), settled=settled,
        skipped=sum(r.skipped for r in reports), relative=reports[0].kind == "rate",
    )  # fmt: skip
    singles = [r for r in settled if r.single]
    if singles:
        facts.single_rank = singles[-1].rank
    rates = [r.tflops for r in settled if r.tflops]
    facts.tflops = median(rates) if rates else None
    steady = [r for r in settled if not r.skipped]
    if len(steady) < len(settled) / 2:
        steady = settled
    values = np.array([r.step_ms for r in steady], dtype=np.float64)
    shifts = level_shifts(values)
    facts.changes = [_change(shifts, n, steady) for n in range(len(shifts))]
    facts.outliers = _outliers(settled, steady, shifts)
    begin = shifts[-1].index if shifts else 0
    facts.spreads = _spreads(steady[begin:])
    single = _medians(steady[begin:], lambda r: r.single)
    facts.single = {timer: single[timer] for timer in leaves(single.keys())}
    return facts


def _settled(reports: Sequence[Report]) -> list[Report]:
    """Leave out the iterations that a job begins with: compilation, allocation, connections."""
    begun = reports[0].iteration - reports[0].covers
    kept = [r for r in reports if r.iteration - r.covers - begun >= SETTLING_ITERATIONS]
    if reports[0].covers >= SETTLING_ITERATIONS:
        kept = list(reports[1:])
    return kept or list(reports)


def _change(shifts: Sequence[LevelShift], n: int, steady: Sequence[Report]) -> Change:
    shift = shifts[n]
    begin = shifts[n - 1].index if n else 0
    end = shifts[n + 1].index if n + 1 < len(shifts) else len(steady)
    before, after = steady[begin : shift.index], steady[shift.index : end]
    return Change(
        iteration=max(after[0].iteration - after[0].covers + 1, 1),
        last_iteration=after[-1].iteration,
        before_ms=shift.before,
        after_ms=shift.after,
        chance=shift.chance,
        work=_other_work(before, after),
        single=_grown(before, after, lambda r: r.single),
        least=_grown(before, after, lambda r: r.least),
        most=_grown(before, after, lambda r: r.most),
    )


def _other_work(
    before: Sequence[Report], after: Sequence[Report]
) -> tuple[str, float, float] | None:
    """Return by what iterations do more or less than before, where they do."""
    for words, values in (
        ("global batch size", [[r.batch for r in part if r.batch] for part in (before, after)]),
        ("sequence length", [[r.sequence for r in part if r.sequence] for part in (before, after)]),
    ):
        if values[0] and values[1] and median(values[0]) != median(values[1]):
            return words, median(values[0]), median(values[1])
    return None


def _grown(before: Sequence[Report], after: Sequence[Report], pick: Pick) -> list[Growth]:
    """Return how the timers changed, the one that grew most first."""
    was, now = _medians(before, pick), _medians(after, pick)
    grown = [
        Growth(timer=timer, before_ms=was[timer], after_ms=now[timer])
        for timer in leaves(now.keys())
        if timer in was
    ]
    return sorted(grown, key=lambda growth: -growth.grown_ms)


def _medians(reports: Sequence[Report], pick: Pick) -> dict[str, float]:
    """Return the median of each timer that half of the reports have."""
    values: dict[str, list[float]] = {}
    for report in reports:
        ms = pick(report)
        for timer in ms:
            values.setdefault(timer, []).append(less_parts(timer, ms))
    return {t: median(v) for t, v in values.items() if len(v) >= max(len(reports) / 2, 1)}


def _outliers(
    settled: Sequence[Report], steady: Sequence[Report], shifts: Sequence[LevelShift]
) -> list[Outlier]:
    cuts = [steady[shift.index].iteration for shift in shifts]
    levels = [shift.before for shift in shifts] + [shifts[-1].after if shifts else 0.0]
    usual = median(r.step_ms for r in steady)
    around = []
    for report in settled:
        level = levels[sum(report.iteration >= cut for cut in cuts)] if shifts else usual
        around.append(report.step_ms / level - 1)
    noise = spread(np.array(around, dtype=np.float64))
    found = []
    for report, excess in zip(settled, around, strict=True):
        if 1 + excess < OUTLIER_RATIO or excess < OUTLIER_SPREADS * noise:
            continue
        why = [*report.near, *(["a skipped iteration"] if report.skipped else [])]
        found.append(
            Outlier(iteration=report.iteration, step_ms=report.step_ms, why=" and ".join(why))
        )
    return found[:MAX_OUTLIERS]


def _spreads(reports: Sequence[Report]) -> list[Spread]:
    """Return the timers across ranks, the one with the widest first."""
    least, most = _medians(reports, lambda r: r.least), _medians(reports, lambda r: r.most)
    found = [
        Spread(timer=timer, phase=phase_of(timer), least_ms=least[timer], most_ms=most[timer])
        for timer in leaves(most.keys())
        if timer in least
    ]
    return sorted(found, key=lambda one: one.least_ms - one.most_ms)
