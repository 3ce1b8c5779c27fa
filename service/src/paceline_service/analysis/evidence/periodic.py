"""Ranks that stall every so many steps: garbage collection, checkpoints (docs/math/episodes.md)."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from dataclasses import field, replace

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.evidence.episode import Episode, StepNote
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.analysis.sets import distinct

LEAST_STALL = 0.05
"""Log units below which a late step is no stall; it would cost less than 0.5 % at every tenth."""
STALL_SPREADS = 6.0
"""Standard deviations of the jitter above which it is one; normal jitter never is."""
KEPT_STALLS = 32
MOST_RANKS = 4096
"""Ranks whose stalls are kept; the one that has not stalled for longest is forgotten first."""
LEAST_STALLS = 5
LIKE_THE_LARGEST = 0.5
"""Share of a rank's usual large stall below which a stall is another thing: single late steps
between the periodic ones do not hide them."""
SLACK = 8
"""Gaps may differ from the period by an eighth of it: a collector runs every so many objects."""
OVER_AFTER = 3.0
"""Periods without a stall after which it is over."""
_PEERS_LOOKED_AT = 32
REPEATED = 3
"""So many short stalls of one rank are no accident, though each is over at once."""


@dataclass(slots=True)
class _Stall:
    index: int
    until: int
    """Its last step; a stall may last for some, a rank that is slow for good has but one."""
    step: int
    since_ns: int
    """Duration of all steps up to this one, it included."""
    score: float
    figures: FloatArray
    """Self, peer self, recoverable, alone, blamed ns; last arrivals, contested; wasted ns; then
    the excess of each phase and what the peers need for it."""


@dataclass(slots=True)
class _Found:
    period: float
    first: _Stall
    last: _Stall
    log_chance: float
    count: int = 1
    score: float = 0.0
    figures: FloatArray = field(default_factory=lambda: np.zeros(0))

    def fits(self, stall: _Stall) -> bool:
        """Whether ``stall`` came a whole number of periods after the last one."""
        gap = stall.index - self.last.index
        whole = max(round(gap / self.period), 1)
        return abs(gap - whole * self.period) <= max(self.period / SLACK, 0.5) * whole

    def add(self, stall: _Stall) -> None:
        """Count a further stall."""
        self.last = stall
        self.count += 1
        self.score += stall.score
        self.figures = self.figures + stall.figures


class PeriodicWatch:
    """Keeps the stalls of each rank and tells those that come at a steady period."""

    def __init__(self, world_size: int) -> None:
        self._size = world_size
        self._stalls: OrderedDict[int, deque[_Stall]] = OrderedDict()
        self._found: dict[int, _Found] = {}
        self._index = 0
        self._since_ns = 0
        self._newest_step = 0

    def see(
        self, note: StepNote, plan: PeerPlan, busy: BoolArray, jitter: float, gamma: float
    ) -> None:
        """Take the next step; ``gamma`` steps may pass per false finding of this test."""
        self._index += 1
        self._since_ns += note.duration_ns
        self._newest_step = note.step
        late = note.scores > max(LEAST_STALL, STALL_SPREADS * jitter)
        if not late.any():
            return
        ranks = np.flatnonzero(late & ~busy)
        if not len(ranks):
            return
        for rank, stall in zip(ranks.tolist(), self._stalls_of(note, ranks, plan), strict=True):
            found = self._found.get(rank)
            if found is not None:
                if found.last.until == stall.index - 1:
                    found.last.until = stall.index
                    found.figures += stall.figures
                    continue
                if found.fits(stall):
                    found.add(stall)
                    continue
            kept = self._stalls.setdefault(rank, deque(maxlen=KEPT_STALLS))
            if kept and kept[-1].until == stall.index - 1:
                kept[-1].until = stall.index
                kept[-1].figures += stall.figures
                continue
            self._stalls.move_to_end(rank)
            kept.append(stall)
            if len(self._stalls) > MOST_RANKS:
                self._stalls.popitem(last=False)
            if len(kept) >= LEAST_STALLS:
                self._look(rank, kept, gamma)

    def episodes(self, gamma: float, judged_steps: int) -> list[Episode]:
        """Return what was found as episodes whose totals are those of the stalls alone."""
        return [self._episode(rank, found, gamma, judged_steps)
                for rank, found in sorted(self._found.items())]  # fmt: skip

    def _look(self, rank: int, kept: deque[_Stall], gamma: float) -> None:
        """Find out whether the kept stalls of ``rank`` come at a steady period."""
        large = LIKE_THE_LARGEST * float(np.quantile([stall.score for stall in kept], 0.75))
        alike = [stall for stall in kept if stall.score >= large]
        if len(alike) < LEAST_STALLS or alike[-1] is not kept[-1]:
            return
        gaps = np.diff([stall.index for stall in alike])
        period = median_of(gaps)
        near = np.abs(gaps - period) <= max(period / SLACK, 0.5)
        if period < 2:
            return
        log_chance = log_chance_of_period(len(gaps), int(near.sum()), period)
        # Every stall is a look, and there are as many as steps over periods, for every rank.
        looks = self._size * gamma / period
        if log_chance + math.log(max(looks, 1.0)) > 0:
            return
        period = float(np.mean(gaps[near]))
        on_time = [stall for at, stall in enumerate(alike)
                   if (at and near[at - 1]) or (at < len(near) and near[at])]  # fmt: skip
        found = _Found(period, on_time[0], on_time[0], log_chance)
        found.score, found.figures = on_time[0].score, on_time[0].figures.copy()
        for stall in on_time[1:]:
            found.add(stall)
        old = self._found.get(rank)
        if old is not None and old.count >= found.count and self._is_open(old):
            return
        self._found[rank] = found
        kept.clear()

    def _stalls_of(self, note: StepNote, ranks: Int64Array, plan: PeerPlan) -> list[_Stall]:
        own_ns = note.self_ns[ranks].astype(float)
        top = int(note.self_ns.argmax())
        without_top = float(np.delete(note.self_ns, top).max(initial=0))
        fit = note.self_ns.copy()
        fit[ranks] = 0
        phases = note.phase_self_ns.shape[1]
        figures = np.empty((len(ranks), 8 + 2 * phases))
        figures[:, 0] = own_ns
        figures[:, 1] = own_ns * np.exp(-note.scores[ranks])
        figures[:, 2] = np.where(ranks == top, own_ns - without_top, 0.0)
        figures[:, 3] = np.maximum(own_ns - float(fit.max(initial=0)), 0.0)
        figures[:, 4] = note.blamed_ns[ranks]
        figures[:, 5] = note.last_count[ranks]
        figures[:, 6] = note.last_count.sum()
        figures[:, 7] = np.minimum(figures[:, 4], figures[:, 3] * np.count_nonzero(fit > 0))
        group = plan.group[ranks]
        for index in distinct(group):
            peers = np.flatnonzero((plan.group == index) & (note.self_ns >= 0))
            peers = peers[~np.isin(peers, ranks)][:_PEERS_LOOKED_AT]
            here = group == index
            usual = median_of(note.phase_self_ns[peers], axis=0) if len(peers) else 0.0
            figures[here, 8 : 8 + phases] = note.phase_self_ns[ranks[here]] - usual
            figures[here, 8 + phases :] = usual
        return [
            _Stall(self._index, self._index, note.step, self._since_ns, float(note.scores[rank]),
                   figures[at].copy())
            for at, rank in enumerate(ranks)
        ]  # fmt: skip

    def _is_open(self, found: _Found) -> bool:
        return self._index - found.last.index <= OVER_AFTER * found.period

    def _episode(self, rank: int, found: _Found, gamma: float, judged_steps: int) -> Episode:
        figures = found.figures
        phases = (len(figures) - 8) // 2
        # The stalls are few, the time they cost a share of is all of it, from the first period on.
        spanned = max(found.last.index - found.first.index, 1)
        duration_ns = (found.last.since_ns - found.first.since_ns) * (1 + found.period / spanned)
        evidence = math.exp(min(-found.log_chance, 500.0))
        return Episode(
            rank=rank,
            first_step=found.first.step,
            last_step=found.last.step,
            seen_step=self._newest_step,
            shift=found.score / found.count,
            offset=0.0,
            evidence=evidence,
            confidence=float(np.clip(1 - judged_steps * self._size / evidence, 0.0, 0.999999)),
            from_start=False,
            open=self._is_open(found),
            steps=found.count,
            duration_ns=round(duration_ns),
            recoverable_ns=round(figures[2]),
            alone_ns=round(figures[3]),
            blamed_ns=float(figures[4]),
            wasted_ns=float(figures[7]),
            last_arrivals=round(figures[5]),
            contested=round(figures[6]),
            phase_excess_ns=figures[8 : 8 + phases].copy(),
            phase_peer_ns=figures[8 + phases :].copy(),
            self_ns=float(figures[0]),
            peer_self_ns=float(figures[1]),
            period_steps=found.period,
        )


def log_chance_of_period(gaps: int, near: int, period: float) -> float:
    """Return the log of an upper limit of the chance that random stalls look so steady.

    Stalls at random, one in ``period`` steps on average, leave a gap within ``period / SLACK`` of
    the period with a chance of at most ``p = (2 period / SLACK + 1) / (e (period - 1))``. The
    period was chosen among the gaps, so one of them counts for nothing:
    ``C(gaps - 1, near - 1) p^(near - 1)``.

    Args:
        gaps: between successive stalls.
        near: how many of them are about as long as the period.
        period: median gap, steps; at least 2.
    """
    slack = math.floor(max(period / SLACK, 0.5))
    chance = min((2 * slack + 1) / (math.e * max(period - 1, 1.0)), 1.0)
    if near < 2 or chance >= 1:
        return 0.0
    ways = math.lgamma(gaps) - math.lgamma(near) - math.lgamma(gaps - near + 1)
    return min(ways + (near - 1) * math.log(chance), 0.0)


def with_period(finding: Finding, episodes: list[Episode]) -> Finding:
    """Return the finding with the period of its stalls, where they have one."""
    periods = [e.period_steps for e in episodes if e.period_steps is not None]
    if not periods or len(periods) < len([e for e in episodes if not e.transient]):
        return finding
    period, stalls = periods[-1], sum(e.steps for e in episodes if e.period_steps is not None)
    sentence = f"it stalled every {period:.3g} steps, {stalls} times; in between it is as fast"
    return replace(finding, period_steps=period, evidence=[sentence, *finding.evidence])


def passing(episodes: list[Episode]) -> str | None:
    """Return a sentence about a rank that was slow too shortly and too seldom to be named.

    None when it is to be named: it is slow now, was for long, or stalled again and again.
    """
    if not all(e.transient for e in episodes) or len(episodes) >= REPEATED:
        return None
    spans = ", ".join(f"{e.first_step}-{e.last_step}" for e in episodes)
    longest = max(episodes, key=lambda e: e.self_ns - e.peer_self_ns)
    return (
        f"rank {longest.rank} stalled in steps {spans} and recovered at once, "
        f"{(longest.self_ns - longest.peer_self_ns) / 1e9:.2f} s longer than its peers: it is not "
        "slow for good"
    )
