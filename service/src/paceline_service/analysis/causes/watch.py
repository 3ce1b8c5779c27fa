"""What surrounded each rank in each step: when it was, what stopped it, what was sampled then.

Episodes name steps; telemetry has times on the clock of its rank. This keeps when each step
began on each rank, and so finds the samples of the same steps on ranks that share no clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Phase, RecordKind
from paceline_service.analysis.causes.history import ThinningHistory
from paceline_service.analysis.causes.telemetry import (
    COLUMN,
    NODE_COLUMNS,
    Event,
    SampleLike,
    TelemetryStore,
)
from paceline_service.analysis.channel import JudgedStep
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array

MAX_STEP_VALUES = 8_000_000
"""Numbers about steps that are kept over all ranks, 64 MB."""
LEAST_STEPS, MOST_STEPS = 16, 4096
MAX_PEERS = 32
"""So many peers are compared with; more of them would change no median."""
EVENT_BEFORE_NS = 60_000_000_000
"""An error up to a minute before a rank became slow counts: the driver tries to recover first."""
_START, _GC, _NO_CORE, _NO_LOCK = range(4)
NO_LOCK_SEQ = 2
"""``seq`` of a STARVED record without the interpreter's lock; 1 is without a core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What was known of a rank and of its peers over the same steps.

    Attributes:
        own: (columns,) mean of each sampled value, NaN where unknown; see ``value``.
        peers: (columns,) median over the peers of the same.
        samples: how many samples ``own`` stands on.
        peer_samples: how many the peers have together.
        peer_count: peers of which samples are known.
        events: what its GPU reported in these steps or shortly before.
        peer_events: names of what some peer's GPU reported too.
        states: names of the states that hold at the end.
        paused_ns: per step beyond the peers' median: ``gc``, ``no_core``, ``no_lock``.
        step_ns: mean duration of a step.
    """

    own: FloatArray
    peers: FloatArray
    samples: int
    peer_samples: int
    peer_count: int
    events: list[Event]
    peer_events: set[str]
    states: set[str]
    paused_ns: dict[str, float]
    own_paused_ns: dict[str, float]
    step_ns: float

    def value(self, name: str) -> tuple[float, float]:
        """Return the mean of a column on the rank and on its peers; NaN where unknown."""
        return float(self.own[COLUMN[name]]), float(self.peers[COLUMN[name]])


class CauseWatch:
    """Takes steps and samples; tells what surrounded a rank over given steps."""

    def __init__(self, world_size: int) -> None:
        capacity = int(np.clip(MAX_STEP_VALUES // (4 * world_size), LEAST_STEPS, MOST_STEPS))
        self._world_size = world_size
        self._steps = ThinningHistory((world_size, 4), capacity)
        self._durations = ThinningHistory((), capacity)
        self.telemetry = TelemetryStore(world_size)

    def add_telemetry(self, rank: int, samples: Iterable[SampleLike]) -> None:
        """Take samples of one rank, in the order in which they were sent."""
        self.telemetry.add(rank, samples)

    def see(self, step: JudgedStep) -> None:
        """Take the next step."""
        row = step.row
        values = np.full((self._world_size, 4), np.nan)
        here = row.start_ns >= 0
        values[here, _START] = row.start_ns[here]
        values[here, 1:] = 0.0
        table = step.table
        pause = np.flatnonzero((table.kind == RecordKind.PHASE) & (table.code >= int(Phase.GC)))
        if len(pause):
            code, seq = table.code[pause], table.seq[pause]
            column = np.where(code == Phase.GC, _GC, np.where(seq == NO_LOCK_SEQ, _NO_LOCK,
                                                              _NO_CORE))  # fmt: skip
            spent = np.maximum(table.end_ns[pause] - table.start_ns[pause], 0)
            np.add.at(values, (table.rank[pause], column), spent.astype(np.float64))
        self._steps.append(float(row.step), values)
        self._durations.append(float(row.step), np.array(float(row.duration_ns)))

    def surroundings(
        self, rank: int, peers: Int64Array, spans: Sequence[tuple[int, int]], nodes: dict[int, str]
    ) -> Surroundings:
        """Return what is known of ``rank`` and of some ``peers`` over the steps of ``spans``.

        Args:
            rank: whose.
            peers: ranks to compare with; at most ``MAX_PEERS`` of them are taken.
            spans: first and last step of each stretch.
            nodes: by rank; values of a node come with one of its ranks.
        """
        peers = peers[peers != rank]
        if len(peers) > MAX_PEERS:
            peers = peers[np.linspace(0, len(peers) - 1, MAX_PEERS).astype(np.int64)]
        ranks = np.concatenate([[rank], peers]).astype(np.int64)
        carriers = self._carriers(nodes)
        means, counts = [], []
        for one in map(int, ranks):
            mean, samples = self.telemetry.mean(one, self._windows(one, spans))
            carrier = carriers.get(nodes.get(one, ""), one)
            if carrier != one and np.isnan(mean[NODE_COLUMNS]).all():
                theirs, _ = self.telemetry.mean(carrier, self._windows(carrier, spans))
                mean[NODE_COLUMNS] = theirs[NODE_COLUMNS]
            means.append(mean)
            counts.append(samples)
        table = np.stack(means)
        # What a node has is compared with other nodes: its own ranks all share it.
        node = nodes.get(rank, "")
        beside = np.array([nodes.get(int(peer), "") == node for peer in ranks[1:]], dtype=np.bool_)
        table[np.ix_(1 + np.flatnonzero(beside), NODE_COLUMNS)] = np.nan
        if beside.all():
            table[0, NODE_COLUMNS] = np.nan
        paused, own_paused = self._pauses(ranks, spans)
        kept = self.telemetry.ranks.get(rank)
        others = [self._events(int(peer), spans) for peer in peers]
        return Surroundings(
            own=table[0],
            peers=median_of_known(table[1:]),
            samples=counts[0],
            peer_samples=sum(counts[1:]),
            peer_count=sum(count > 0 for count in counts[1:]),
            events=self._events(rank, spans),
            peer_events={event.name for events in others for event in events},
            states=kept.states if kept else set(),
            paused_ns=paused,
            own_paused_ns=own_paused,
            step_ns=self._step_ns(spans),
        )

    def kept_steps(self, spans: Sequence[tuple[int, int]]) -> int:
        """Return how many steps of ``spans`` were analysed; others were lost or left out."""
        return round(float(self._steps.counts[self._chosen(spans)].sum()))

    def own_past(self, rank: int, spans: Sequence[tuple[int, int]]) -> tuple[FloatArray, int]:
        """Return the means of a rank's own samples over some steps, and how many there are."""
        return self.telemetry.mean(rank, self._windows(rank, spans))

    def _windows(self, rank: int, spans: Sequence[tuple[int, int]]) -> FloatArray:
        """Return (W, 2) when the spans began and ended on the clock of ``rank``, ns."""
        known = ~np.isnan(self._steps.values[:, rank, _START])
        if not known.any():
            return np.zeros((0, 2))
        keys, starts = self._steps.keys[known], self._steps.values[known, rank, _START]
        tail_ns = self._step_ns(spans)
        return np.array(
            [
                (np.interp(first, keys, starts),
                 np.interp(last + 1, keys, starts) if last < keys[-1] else starts[-1] + tail_ns)
                for first, last in spans
            ]
        )  # fmt: skip

    def _chosen(self, spans: Sequence[tuple[int, int]]) -> BoolArray:
        keys = self._steps.keys
        chosen = np.zeros(len(keys), dtype=np.bool_)
        for first, last in spans:
            chosen |= (keys >= first) & (keys <= last)
        return chosen

    def _pauses(
        self, ranks: Int64Array, spans: Sequence[tuple[int, int]]
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return what stopped the first of ``ranks`` per step: beyond the others, and in all."""
        words = {"gc": _GC, "no_core": _NO_CORE, "no_lock": _NO_LOCK}
        chosen = self._chosen(spans)
        if not chosen.any():
            return dict.fromkeys(words, 0.0), dict.fromkeys(words, 0.0)
        weight = self._steps.counts[chosen][:, None]
        values = np.nan_to_num(self._steps.values[chosen][:, ranks, 1:])
        per_rank = (values * weight[:, :, None]).sum(axis=0) / weight.sum()
        others = median_of(per_rank[1:], axis=0) if len(ranks) > 1 else np.zeros(3)
        beyond = {word: float(max(per_rank[0, i - 1] - others[i - 1], 0.0))
                  for word, i in words.items()}  # fmt: skip
        return beyond, {word: float(per_rank[0, i - 1]) for word, i in words.items()}

    def _step_ns(self, spans: Sequence[tuple[int, int]]) -> float:
        chosen = self._chosen(spans)
        if not chosen.any():
            return 0.0
        return float(np.nan_to_num(self._durations.mean(chosen)))

    def _events(self, rank: int, spans: Sequence[tuple[int, int]]) -> list[Event]:
        kept = self.telemetry.ranks.get(rank)
        windows = self._windows(rank, spans)
        if kept is None or not len(windows):
            return []
        begin, end = windows[:, 0].min() - EVENT_BEFORE_NS, windows[:, 1].max()
        every = [event for events in kept.events.values() for event in events]
        return sorted(
            (event for event in every if begin <= event.time_ns <= end),
            key=lambda event: (event.time_ns, event.name),
        )

    def _carriers(self, nodes: dict[int, str]) -> dict[str, int]:
        """Return the rank that each node's values came with."""
        found: dict[str, int] = {}
        for rank in sorted(self.telemetry.ranks):
            node = nodes.get(rank, "")
            if node and node not in found and self.telemetry.ranks[rank].has_node:
                found[node] = rank
        return found


def median_of_known(table: FloatArray) -> FloatArray:
    """Return the median of each column of ``table`` (ranks, columns) over what is no NaN."""
    out = np.full(table.shape[1], np.nan)
    known = ~np.isnan(table).all(axis=0) if len(table) else np.zeros(0, dtype=np.bool_)
    if known.any():
        out[known] = np.nanmedian(table[:, known], axis=0)
    return out
