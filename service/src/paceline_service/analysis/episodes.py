"""From evidence to episodes: a rank is slow from one step to another (docs/math/episodes.md)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from paceline_service.analysis.baseline import (
    Baseline,
    learn_baseline,
    median_by_rank,
    median_error,
)
from paceline_service.analysis.episode import Episode, StepNote
from paceline_service.analysis.evidence import EDetector, steps_between_false_alarms
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.scores import lateness_scores, relative_logs, spread

CHANNELS = 2
"""Scores as they are, and scores less each rank's learned offset, share the false-alarm rate."""
SPREAD_MULTIPLE = 5.0
"""Without a healthy past a rank must stand this many spreads of its peers' offsets apart."""
OFFSET_DOUBT = 1e-3
"""Chance that any rank's learned offset is off by more than the margin it is given."""
FAULT_IN_LEARNING = 0.2
"""A fault that begins while learning looks like jitter that lasts: a correlation that jumps by
more than its own error (0.1 at 30 steps of 4 ranks) is not believed."""
RECOVERY_LOG_ODDS = 20.0
"""Log-likelihood ratio for 'as fast as before' that closes an episode."""
_RECOVERY_CLIP = 1.0
"""What one step may add to it: a calm spell of a noisy machine is no recovery."""
_ONSET_STEPS = 10
_ONSET_ROUNDS = 3
APART_STEPS = 256
"""How many steps back a rank without a healthy past is measured."""
HISTORY_STEPS = 4096


class EpisodeTracker:
    """Watches the scores of all ranks step by step, opens and closes episodes."""

    def __init__(self, world_size: int, options: Options) -> None:
        self._options = options
        self._world_size = world_size
        self._raw = EDetector(world_size)
        self._relative = EDetector(world_size)
        self._baseline: Baseline | None = None
        self._offset = np.zeros(world_size)
        self._offset_margin = np.zeros(world_size)
        self._score_offset = np.zeros(world_size)
        self._learning: list[tuple[FloatArray, FloatArray]] = []
        self._learn_at = options.learning_steps
        self._learn_until = options.learning_steps << options.relearnings
        self._previous = np.full(world_size, np.nan)
        keep = options.history_values // max(world_size * 8, 1)
        self._notes: deque[StepNote] = deque(
            maxlen=int(np.clip(keep, 2 * options.learning_steps, HISTORY_STEPS))
        )
        self._seen_steps = 0
        self.judged_steps = 0
        self.scored_steps = np.zeros(world_size, dtype=np.int64)
        """In how many of them each rank could be compared with a peer, (R,)."""
        self.step_s = 0.0
        self.episodes: list[Episode] = []

    @property
    def baseline(self) -> Baseline | None:
        """What was learned; None while learning."""
        return self._baseline

    @property
    def offset_margin(self) -> float:
        """How far the learned offset of a typical rank may be off, log units."""
        return float(np.median(self._offset_margin))

    @property
    def gamma_steps(self) -> float:
        """Steps between two false alarms of one channel at the allowed rate."""
        return steps_between_false_alarms(
            self._options.false_namings_per_month, self.step_s, channels=CHANNELS
        )

    def update(self, note: StepNote, peer_groups: list[Int64Array]) -> StepNote:
        """Take the next step; returns its note with the scores, NaN while the job settles."""
        self._seen_steps += 1
        if self._seen_steps <= self._options.settling_steps:
            return note
        scores = lateness_scores(note.self_ns, peer_groups)
        note = note.with_scores(scores)
        self._notes.append(note)
        self.judged_steps += 1
        self.scored_steps += ~np.isnan(scores)
        self.step_s = float(np.median([n.duration_ns for n in list(self._notes)[-64:]])) / 1e9
        rho = self._baseline.autocorrelation if self._baseline else 0.0
        common = relative_logs(note.self_ns, peer_groups)
        fresh = common - rho * np.nan_to_num(self._previous)
        for peers in peer_groups:
            self._raw.update(fresh, peers)
        if self._baseline is not None:
            residual = fresh - (1 - rho) * self._offset
            for peers in peer_groups:
                self._relative.update(residual, peers, (1 - rho) * self._offset_margin)
        self._learn(common, scores)
        self._previous = common
        self._follow_open(note, peer_groups)
        self._open_new(peer_groups)
        return note

    def _learn(self, common: FloatArray, scores: FloatArray) -> None:
        """Learn the offsets after 30, 60, 120 ... steps, of ranks that nothing is held against."""
        if self.judged_steps > self._learn_until:
            return
        self._learning.append((common, scores))
        if self.judged_steps < self._learn_at:
            return
        learned = learn_baseline(np.stack([common for common, _ in self._learning]))
        before = self._baseline
        if before and learned.autocorrelation > before.autocorrelation + FAULT_IN_LEARNING:
            learned = replace(learned, autocorrelation=before.autocorrelation)
        self._baseline = learned
        measured = learn_baseline(np.stack([scores for _, scores in self._learning]))
        # Under chance alone the evidence is the number of steps on average.
        calm = self._relative.values() <= self.judged_steps
        calm[list(self._slow_now())] = False
        self._offset[calm] = self._baseline.offset[calm]
        self._offset_margin[calm] = self._doubt() * self._baseline.offset_error
        self._score_offset[calm] = measured.offset[calm]
        self._learn_at *= 2
        if self._learn_at > self._learn_until:
            self._learning.clear()

    def _follow_open(self, note: StepNote, peer_groups: list[Int64Array]) -> None:
        slow = self._slow_now()
        for episode in self.episodes:
            if not episode.open:
                continue
            score = note.scores[episode.rank]
            if np.isnan(score):
                continue
            evidence = max(self._raw.values()[episode.rank],
                           self._relative.values()[episode.rank])  # fmt: skip
            episode.evidence = max(episode.evidence, float(evidence))
            episode.confidence = max(episode.confidence, self._confidence(episode.evidence))
            episode.seen_step = note.step
            jitter = max(self._jitter(), episode.shift / 2)
            half = episode.offset + episode.shift / 2
            odds = float(np.clip(episode.shift * (half - score) / jitter**2,
                                 -_RECOVERY_CLIP, _RECOVERY_CLIP))  # fmt: skip
            episode.recovery = max(0.0, episode.recovery + odds)
            if episode.recovery > 0:
                episode.pending.append(note)
            else:
                for held in [*episode.pending, note]:
                    episode.add(held, _peers_of(episode.rank, peer_groups), slow)
                episode.pending.clear()
            if episode.recovery >= RECOVERY_LOG_ODDS:
                episode.open = False
                episode.pending.clear()
                ranks = np.array([episode.rank])
                self._raw.reset(ranks)
                self._relative.reset(ranks)

    def _open_new(self, peer_groups: list[Int64Array]) -> None:
        busy = self._slow_now()
        threshold = self._world_size * self.gamma_steps
        raw, relative = self._raw.values(), self._relative.values()
        named: list[tuple[int, float, float]] = []
        for rank in map(int, np.flatnonzero((raw >= threshold) | (relative >= threshold))):
            if rank in busy:
                continue
            if relative[rank] >= threshold:
                named.append((rank, float(self._score_offset[rank]), float(relative[rank])))
            elif self._stands_apart(rank, _peers_of(rank, peer_groups)):
                named.append((rank, 0.0, float(raw[rank])))
        slow = busy | {rank for rank, _, _ in named}
        for rank, offset, evidence in named:
            self._open(rank, offset, evidence, _peers_of(rank, peer_groups), slow)

    def _slow_now(self) -> set[int]:
        return {episode.rank for episode in self.episodes if episode.open}

    def _stands_apart(self, rank: int, peers: Int64Array) -> bool:
        """Whether a rank that was always last is also far from its peers' healthy spread."""
        scores = np.stack([note.scores for note in list(self._notes)[-APART_STEPS:]])
        typical = median_by_rank(scores)
        own = scores[~np.isnan(scores[:, rank]), rank]
        others = typical[peers[peers != rank]]
        rho = self._baseline.autocorrelation if self._baseline else 0.0
        doubt = self._doubt() * median_error(spread(own), len(own), rho)
        limit = max(self._options.slow_from_start_ratio, SPREAD_MULTIPLE * spread(others))
        return bool(np.median(own) - np.median(others) - doubt > limit)

    def _open(
        self, rank: int, offset: float, evidence: float, peers: Int64Array, slow: set[int]
    ) -> None:
        scores = np.array([note.scores[rank] for note in self._notes])
        known = np.flatnonzero(~np.isnan(scores))
        closed = [e.last_step for e in self.episodes if e.rank == rank]
        if closed:
            known = known[[self._notes[i].step > max(closed) for i in known]]
        excess = scores[known] - offset
        onset = find_onset(excess)
        shift = float(np.median(excess[onset:]))
        if shift <= 0:
            return
        notes = [self._notes[i] for i in known[onset:]]
        from_start = known[onset] == 0 and self.judged_steps <= (self._notes.maxlen or 0)
        episode = Episode(
            rank=rank,
            first_step=0 if from_start else notes[0].step,
            last_step=notes[-1].step,
            seen_step=notes[-1].step,
            shift=shift,
            offset=offset,
            evidence=evidence,
            confidence=self._confidence(evidence),
            from_start=bool(from_start),
        )
        for note in notes:
            episode.add(note, peers, slow)
        self.episodes.append(episode)

    def _confidence(self, evidence: float) -> float:
        """Return a lower bound of the probability that chance did not do this (Doob)."""
        chance = self._world_size * CHANNELS * max(self.judged_steps, 1) / max(evidence, 1.0)
        return float(np.clip(1.0 - chance, 0.0, 0.999999))

    def _doubt(self) -> float:
        """Return how many standard errors to allow for, so that it holds for all ranks at once."""
        return NormalDist().inv_cdf(1 - OFFSET_DOUBT / self._world_size)

    def _jitter(self) -> float:
        return self._baseline.jitter if self._baseline else 0.0


def find_onset(excess: FloatArray) -> int:
    """Return the index where a shift began: the largest tail sum above half of it.

    Maximum likelihood for a known shift in noise of equal spread (Hinkley 1970). The shift is
    the median of the last ten values, then of all values since the onset that this gave.
    """
    onset = max(len(excess) - _ONSET_STEPS, 0)
    for _ in range(_ONSET_ROUNDS):
        half = max(float(np.median(excess[onset:])) / 2, 0.0)
        tail = np.cumsum((np.clip(excess, -2 * half, 2 * half) - half)[::-1])[::-1]
        onset = int(np.argmax(tail))
    return onset


def _peers_of(rank: int, peer_groups: list[Int64Array]) -> Int64Array:
    return next(group for group in peer_groups if rank in group)
