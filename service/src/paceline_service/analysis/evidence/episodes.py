"""From evidence to episodes: a rank is slow from one step to another (docs/math/episodes.md)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

import numpy as np

from paceline_service.analysis.evidence.baseline import HEALTHY_SPREAD, Baseline, Learner
from paceline_service.analysis.evidence.edetector import (
    EDetector,
    doubt_factors,
    steps_between_false_alarms,
)
from paceline_service.analysis.evidence.episode import Episode, StepNote
from paceline_service.analysis.evidence.from_start import StartWatch
from paceline_service.analysis.evidence.nodes import NodeEvidence
from paceline_service.analysis.evidence.onset import find_onset
from paceline_service.analysis.evidence.open_episodes import OpenEpisodes
from paceline_service.analysis.evidence.own_history import OwnHistory
from paceline_service.analysis.evidence.periodic import PeriodicWatch
from paceline_service.analysis.evidence.places import PeerPlan
from paceline_service.analysis.evidence.strays import StrayReference
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.scores import log_self

SHARES = {"peers": 0.4, "past": 0.3, "node": 0.1, "start": 0.05, "period": 0.05}
"""How the tests share the allowed false namings: a tenth of it costs ln 10 of evidence, which is
dear for the two that are to be quick. What is left, a tenth, is the network's."""
HISTORY_STEPS = 4096
_STEP_TIMES = 64
_LEAST_BEFORE = 20
MOST_EPISODES_OF_A_RANK = 16
"""Closed episodes of one rank beyond which its oldest are joined, so that state stays bounded."""


class EpisodeTracker:
    """Watches the scores of all ranks step by step, opens and closes episodes."""

    def __init__(self, world_size: int, options: Options) -> None:
        self._options = options
        self._world_size = world_size
        self._plan = PeerPlan([], world_size)
        self._learner = Learner(world_size, options.learning_steps, options.relearnings)
        self._by_peers = EDetector(world_size)
        self._by_past = OwnHistory(world_size)
        self._by_node = NodeEvidence(world_size)
        self._start = StartWatch(world_size, options)
        self._strays = StrayReference(world_size, options.learning_steps)
        self._periodic = PeriodicWatch(world_size)
        self._factors = np.ones(world_size)
        self._previous = np.zeros(world_size)
        self._busy: BoolArray = np.zeros(world_size, dtype=np.bool_)
        self._open = OpenEpisodes()
        self._closed: dict[int, list[Episode]] = {}
        keep = options.history_values // max(world_size * 8, 1)
        self._notes: deque[StepNote] = deque(
            maxlen=int(np.clip(keep, 2 * options.learning_steps, HISTORY_STEPS))
        )
        self._step_times: deque[int] = deque()
        self._sorted_times: list[int] = []
        self._seen_steps = 0
        self.judged_steps = 0
        self.scored_steps = np.zeros(world_size, dtype=np.int64)
        """In how many of them each rank could be compared with a peer, (R,)."""
        self.step_s = 0.0

    def declare_node(self, rank: int, node: str) -> None:
        """Say where ``rank`` runs, so that whole nodes are tested too."""
        self._by_node.declare(rank, node)

    @property
    def episodes(self) -> list[Episode]:
        """All episodes so far: closed ones, open ones, and stalls that come at a period."""
        lasting = [episode for group in self._closed.values() for episode in group]
        lasting += [self._open.episode(row) for row in range(len(self._open))]
        ranks = {episode.rank for episode in lasting if not episode.transient}
        if self.step_s <= 0:
            return lasting
        stalls = self._periodic.episodes(self._gamma("period"), self.judged_steps)
        return lasting + [episode for episode in stalls if episode.rank not in ranks]

    @property
    def baseline(self) -> Baseline | None:
        """What was learned; None while learning."""
        return self._learner.baseline

    @property
    def doubt(self) -> float:
        """Variance of the error of a typical rank's offset over that of its jitter.

        At least that of half of the judged steps: a fault that begins then has no longer past.
        """
        baseline = self.baseline
        least = 2 / max(self.judged_steps, 2)
        return max(least, median_of(baseline.doubt)) if baseline else 1.0

    @property
    def start_limit(self) -> float:
        """How far a rank without a healthy past must stand apart to be named, log units."""
        return self._start.limit

    @property
    def gamma_steps(self) -> float:
        """Steps between two false alarms of the test among peers at the allowed rate."""
        return self._gamma("peers")

    def update(self, note: StepNote, peer_groups: list[Int64Array]) -> StepNote:
        """Take the next step; returns its note with the scores, NaN while the job settles."""
        self._seen_steps += 1
        if self._seen_steps <= self._options.settling_steps:
            return note
        if peer_groups is not self._plan.source:
            self._plan = PeerPlan(peer_groups, self._world_size)
        plan = self._plan
        logs = log_self(note.self_ns)
        common, scores = plan.compare(logs)
        self.scored_steps += ~np.isnan(scores)
        if plan.has_strays:
            own = self._strays.compare(logs, plan.stray, self._busy)
            common[plan.stray] = scores[plan.stray] = own
            if self._strays.just_learned:
                self._learner.adopt(plan.stray, self._options.learning_steps, self._strays.variance)
        note = note.with_scores(scores)
        self._notes.append(note)
        self.judged_steps += 1
        self._time_step(note.duration_ns)
        self._bet(common)
        self._learn(common, scores)
        if len(self._open):
            self._follow(note)
        self._name()
        if self.baseline is not None and self.step_s > 0:
            self._periodic.see(note, plan, self._busy, self.baseline.jitter, self._gamma("period"))
        return note

    def _bet(self, common: FloatArray) -> None:
        """Give this step's scores to the tests."""
        baseline, plan, busy = self.baseline, self._plan, self._busy
        rho = baseline.autocorrelation if baseline else 0.0
        fresh = common - rho * self._previous
        self._previous = np.nan_to_num(common)
        if len(self._open):
            fresh[busy] = np.nan
        self._start.see(fresh, common, plan)
        if baseline is None:
            return
        residual = fresh - (1 - rho) * baseline.offset
        spread = baseline.jitter * np.sqrt(1 - rho**2)
        if spread > 0:
            residual /= spread * baseline.scale
        placed = plan.place(residual)
        weights, scores = placed.bets()
        self._by_peers.bet(placed.ranks, weights * self._factors[placed.ranks, None])
        self._by_node.see(placed, scores, busy, self._factors)
        self._by_past.see(residual, plan, busy, learning=not self._learner.done)

    def _learn(self, common: FloatArray, scores: FloatArray) -> None:
        """Learn the offsets anew at times, of ranks that nothing is held against."""
        if self._learner.done:
            return
        if len(self._open):
            common = np.where(self._busy, np.nan, common)
        if not self._learner.add(common, scores):
            return
        # Under chance alone the evidence is the number of steps on average.
        calm = self._by_peers.values <= self.judged_steps
        calm &= self._by_past.detector.values <= self.judged_steps
        calm &= ~self._busy
        baseline = self._learner.learn(calm)
        self._factors = doubt_factors(
            baseline.doubt, float(np.log(self._world_size * self._gamma("peers")))
        )
        tests = max(self._by_past.tests, 1)
        self._by_past.learn(
            baseline.doubt, baseline.steps, float(np.log(tests * self._gamma("past")))
        )

    def _follow(self, note: StepNote) -> None:
        jitter = self.baseline.jitter if self.baseline else 0.0
        for episode in self._open.follow(note, self._plan, self._busy, jitter):
            kept = self._closed.setdefault(episode.rank, [])
            kept.append(episode)
            if len(kept) > MOST_EPISODES_OF_A_RANK:
                kept[:2] = [kept[0].join(kept[1])]
            rank = np.array([episode.rank])
            self._busy[rank] = False
            for detector in (self._by_peers, self._by_past.detector, self._start.detector):
                detector.reset(rank)

    def _name(self) -> None:
        """Open episodes of the ranks whose evidence passed."""
        if self.step_s <= 0:
            return
        size = self._world_size
        evidence = self._by_peers.values / (size * self._gamma("peers"))
        if self._by_past.tests:
            past = self._by_past.detector.values / (self._by_past.tests * self._gamma("past"))
            evidence = np.maximum(evidence, past)
        passed = evidence >= 1
        offset = self.baseline.score_offset if self.baseline else np.zeros(size)
        if passed.any():
            passed &= ~self._busy
            self._begin(np.flatnonzero(passed), offset, evidence)
        start = self._start.detector.values / (size * self._gamma("start"))
        apart = start >= 1
        if apart.any():
            apart &= ~self._busy
            apart &= self._start.stand_apart(apart, self._plan, self.baseline)
            self._begin(np.flatnonzero(apart), np.zeros(size), start)
        if self._by_node.tests:
            node = self._by_node.detector.values / (self._by_node.tests * self._gamma("node"))
            for number in np.flatnonzero(node >= 1):
                self._begin_node(int(number), float(node[number]), offset)
                self._by_node.detector.reset(np.array([number]))

    def _begin_node(self, number: int, evidence: float, offset: FloatArray) -> None:
        """Name the ranks of a node that became slow together; one alone is named by itself."""
        ranks = self._by_node.ranks_of(number)
        ranks = ranks[~self._busy[ranks]]
        excess, _ = self._excess(ranks, offset)
        together = np.nanmedian(excess, axis=1) if len(ranks) else np.zeros(0)
        together = together[~np.isnan(together)]
        if len(together) < len(excess) or not len(together):
            return
        onset = int(find_onset(together[:, None])[0])
        shift = np.nanmedian(excess[onset:], axis=0)
        usual = float(np.nanmedian(shift))
        slow = ranks[shift > usual / 2]
        if usual > 0 and len(slow) >= max(2, len(ranks) / 2):
            self._begin(slow, offset, np.full(self._world_size, evidence))

    def _excess(self, ranks: Int64Array, offset: FloatArray) -> tuple[FloatArray, list[StepNote]]:
        """Return the kept scores of ``ranks`` less their offsets (T, n), and the T notes."""
        notes = list(self._notes)
        scores = np.stack([note.scores[ranks] for note in notes])
        return scores - offset[ranks], notes

    def _begin(self, ranks: Int64Array, offset: FloatArray, evidence: FloatArray) -> None:
        if not len(ranks):
            return
        excess, notes = self._excess(ranks, offset)
        steps = np.array([note.step for note in notes])
        after = [max((e.last_step for e in self._closed.get(r, ())), default=-1) for r in ranks]
        excess[steps[:, None] <= np.array(after)] = np.nan
        onset = find_onset(excess)
        since = np.arange(len(notes))[:, None] >= onset
        slow_times = np.where(since, excess, np.nan)
        seen = ~np.isnan(slow_times).all(axis=0)
        shift = np.full(len(ranks), -1.0)
        shift[seen] = np.nanmedian(slow_times[:, seen], axis=0)
        least = np.where(self._plan.stray[ranks], HEALTHY_SPREAD, 0.0)
        real = shift > least
        for detector in (self._by_peers, self._by_past.detector):
            detector.reset(ranks[~real])
        ranks, onset, shift = ranks[real], onset[real], shift[real]
        if not len(ranks):
            return
        whole = self.judged_steps <= (self._notes.maxlen or 0)
        from_start = (onset <= self._first_known(excess[:, real])) & whole
        self._busy[ranks] = True
        rows = self._open.begin(
            ranks,
            first_step=np.where(from_start, 0, steps[onset]),
            shift=shift,
            offset=offset[ranks],
            evidence=evidence[ranks],
            confidence=self._confidence(evidence[ranks]),
            from_start=from_start,
            usual_phase_ns=_usual_phases(notes, onset, ranks),
            usual_wait_ns=_usual_waits(notes, onset),
        )
        for at in range(int(onset.min()), len(notes)):
            known = (onset <= at) & ~np.isnan(notes[at].scores[ranks])
            if known.any():
                self._open.seen_step[rows[known]] = notes[at].step
                self._open.add(notes[at], rows[known], self._plan, self._busy)

    @staticmethod
    def _first_known(excess: FloatArray) -> Int64Array:
        return np.asarray((~np.isnan(excess)).argmax(axis=0))

    def _confidence(self, evidence: FloatArray) -> FloatArray:
        """Return a lower bound of the probability that chance did not do this (Doob).

        ``evidence`` is in units of its test's threshold, at which one false alarm is expected
        in ``gamma_steps`` times the test's share.
        """
        gamma = self._gamma("start") * SHARES["start"]
        chance = max(self.judged_steps, 1) / (gamma * np.maximum(evidence, 1e-12))
        return np.asarray(np.clip(1.0 - chance, 0.0, 0.999999))

    def _gamma(self, channel: str) -> float:
        share = SHARES[channel]
        if channel == "peers":
            # Tests that this job has no use for leave their share to this one.
            share += 0.0 if self._by_past.tests else SHARES["past"]
            share += 0.0 if self._by_node.tests else SHARES["node"]
        return steps_between_false_alarms(
            self._options.false_namings_per_month, self.step_s, channels=1 / share
        )

    def _time_step(self, duration_ns: int) -> None:
        """Follow the median duration of the last 64 steps."""
        if len(self._step_times) == _STEP_TIMES:
            oldest = self._step_times.popleft()
            del self._sorted_times[bisect_left(self._sorted_times, oldest)]
        self._step_times.append(duration_ns)
        insort(self._sorted_times, duration_ns)
        count = len(self._sorted_times)
        middle = self._sorted_times[(count - 1) // 2] + self._sorted_times[count // 2]
        self.step_s = middle / 2e9


def _usual_phases(notes: list[StepNote], onset: Int64Array, ranks: Int64Array) -> FloatArray:
    """Return the mean phases of each rank before its onset, (n, phases); 0 where it has no past."""
    before = [note.phase_self_ns[ranks] for note in notes[-_STEP_TIMES * 4 :]]
    first = len(notes) - len(before)
    held = np.arange(len(before))[:, None] + first < onset
    total = (np.stack(before) * held[:, :, None]).sum(axis=0)
    return np.asarray(total / np.maximum(held.sum(axis=0), 1)[:, None])


def _usual_waits(notes: list[StepNote], onset: Int64Array) -> FloatArray:
    """Return what all ranks were charged with in a step before each onset, (n,).

    NaN where fewer steps lie before it than tell a mean.
    """
    charged_ns = np.array([note.blamed_ns.sum() for note in notes[-_STEP_TIMES * 4 :]])
    before = np.clip(onset - (len(notes) - len(charged_ns)), 0, len(charged_ns))
    total = np.append(0.0, np.cumsum(charged_ns))[before]
    return np.where(before >= _LEAST_BEFORE, total / np.maximum(before, 1), np.nan)
