"""What draining ranks or nodes would give back, from the self time of each step.

The longest self time of a step is its critical path; without a rank it is the longest of those
that are left (docs/math/whatif.md). Sums of single ranks and nodes are exact over all steps; for
any other set the slowest ranks of the newest steps are kept.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.channel import JudgedStep
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Int64Array

TOP_RANKS = 16
"""The slowest ranks of a step that are kept: a set of up to 15 can be left out exactly."""
HISTORY_STEPS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What leaving out some ranks would have given back, over some steps.

    Attributes:
        steps: how many steps it is about, ``first_step`` to ``last_step``.
        duration_ns: how long they took.
        recoverable_ns: how much shorter their critical path would have been.
        at_least: whether more may be recoverable: the set holds all the slowest ranks of a step.
    """

    steps: int
    first_step: int
    last_step: int
    duration_ns: int
    recoverable_ns: int
    at_least: bool = False

    @property
    def ratio(self) -> float:
        """Share of the time."""
        return self.recoverable_ns / self.duration_ns if self.duration_ns > 0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The T newest steps: the K slowest ranks of each, the slowest first.

    ``ranks`` and ``self_ns`` are (T, K), -1 where a step has fewer; ``step`` and ``duration_ns``
    (T,); ``group_of`` is (R,), the peer group of each rank.
    """

    ranks: Int64Array
    self_ns: Int64Array
    step: Int64Array
    duration_ns: Int64Array
    group_of: Int64Array

    def without(self, ranks: Collection[int]) -> Gain:
        """Return the gain of leaving out ``ranks``, over the steps kept here.

        Of a peer group that would be left empty the slowest rank stays: somebody has to do its
        work, and nobody shows how fast that goes.
        """
        out = np.zeros(len(self.group_of), dtype=np.bool_)
        out[list(ranks)] = True
        left = np.bincount(self.group_of, weights=~out, minlength=1)
        out &= left[self.group_of] > 0
        known = self.ranks >= 0
        stays = known & ~out[self.ranks]
        first = np.argmax(stays, axis=1)
        everyone = np.arange(len(first))
        least = np.where(known, self.self_ns, np.iinfo(np.int64).max).min(axis=1, initial=1 << 62)
        path = np.where(stays.any(axis=1), self.self_ns[everyone, first], least)
        saved = np.where(known.any(axis=1), self.self_ns[:, 0] - path, 0)
        return Gain(
            steps=len(self.step),
            first_step=int(self.step[0]),
            last_step=int(self.step[-1]),
            duration_ns=int(self.duration_ns.sum()),
            recoverable_ns=int(np.maximum(saved, 0).sum()),
            at_least=bool((known.any(axis=1) & ~stays.any(axis=1)).any()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """What is known at one moment; immutable.

    ``ranks`` and ``nodes`` hold what leaving out that one alone would have given back over all
    ``steps``, ns; who is not there: nothing.
    """

    steps: int
    first_step: int
    last_step: int
    duration_ns: int
    ranks: Mapping[int, int]
    nodes: Mapping[str, int]
    history: History | None = None

    def of(self, recoverable_ns: int) -> Gain:
        """Return ``recoverable_ns`` over all steps as a gain."""
        return Gain(
            steps=self.steps,
            first_step=self.first_step,
            last_step=self.last_step,
            duration_ns=self.duration_ns,
            recoverable_ns=recoverable_ns,
        )


class DrainWatch:
    """Sees every step and adds up what each rank and node would give back; it accuses nobody.

    Args:
        world_size: R.
        options: whose settling steps are left out.
        nodes: node of each rank; may be filled while the job runs.
    """

    def __init__(self, world_size: int, options: Options, nodes: Mapping[int, str]) -> None:
        self._settling = options.settling_steps
        self._nodes = nodes
        self._rank_ns = np.zeros(world_size, dtype=np.int64)
        self._node_ns: Counter[str] = Counter()
        self._node_of = np.full(world_size, -1, dtype=np.int64)
        self._node_names: list[str] = []
        self._nodes_read = 0
        self._groups: list[Int64Array] | None = None
        self._group_of = np.zeros(world_size, dtype=np.int64)
        self._history: deque[tuple[Int64Array, Int64Array, int, int]] = deque(maxlen=HISTORY_STEPS)
        self._steps = 0
        self._first_step = -1
        self._last_step = -1
        self._duration_ns = 0

    def see(self, step: JudgedStep) -> None:
        """Take the next step; those that a job begins with are left out."""
        own = step.row.self_ns
        if step.row.step < self._settling or not step.row.present.any():
            return
        self._read_groups(step.peer_groups)
        self._read_nodes()
        count = min(TOP_RANKS, len(own))
        top = np.argpartition(-own, count - 1)[:count]
        top = top[np.lexsort((top, -own[top]))]
        ranks = np.full(TOP_RANKS, -1, dtype=np.int64)
        self_ns = np.full(TOP_RANKS, -1, dtype=np.int64)
        seen = top[own[top] >= 0]
        ranks[: len(seen)], self_ns[: len(seen)] = seen, own[seen]
        if not self._steps:
            self._first_step = step.row.step
        self._last_step = step.row.step
        self._steps += 1
        self._duration_ns += step.row.duration_ns
        self._history.append((ranks, self_ns, step.row.step, step.row.duration_ns))
        # Only the slowest rank, and its node, can make the critical path shorter by going.
        slowest = int(seen[0])
        alone = np.zeros(len(own), dtype=np.bool_)
        alone[slowest] = True
        self._rank_ns[slowest] += self._saved(own, alone)
        node = int(self._node_of[slowest])
        if node >= 0:
            self._node_ns[self._node_names[node]] += self._saved(own, self._node_of == node)

    def drain(self) -> Drain:
        """Return what is known now."""
        history = None
        if self._history:
            ranks, self_ns, step, duration = zip(*self._history, strict=True)
            history = History(
                ranks=np.stack(ranks),
                self_ns=np.stack(self_ns),
                step=np.array(step),
                duration_ns=np.array(duration),
                group_of=self._group_of.copy(),
            )
        slow = np.flatnonzero(self._rank_ns).tolist()
        return Drain(
            steps=self._steps,
            first_step=self._first_step,
            last_step=self._last_step,
            duration_ns=self._duration_ns,
            ranks={rank: int(self._rank_ns[rank]) for rank in slow},
            nodes={node: ns for node, ns in self._node_ns.items() if ns},
            history=history,
        )

    def _saved(self, own: Int64Array, out: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        """Return by how much the longest self time falls without the ranks ``out``."""
        left = np.full(int(self._group_of.max(initial=0)) + 1, -1, dtype=np.int64)
        stays = ~out & (own >= 0)
        np.maximum.at(left, self._group_of[stays], own[stays])
        # Of a group without anybody left the slowest stays.
        emptied = out & (own >= 0) & (left[self._group_of] < 0)
        longest = max(int(left.max()), int(own[emptied].max(initial=-1)))
        return max(int(own.max()) - longest, 0)

    def _read_groups(self, groups: list[Int64Array]) -> None:
        if groups is self._groups:
            return
        self._groups = groups
        self._group_of = np.zeros(len(self._rank_ns), dtype=np.int64)
        for index, ranks in enumerate(groups):
            self._group_of[ranks] = index

    def _read_nodes(self) -> None:
        if len(self._nodes) == self._nodes_read:
            return
        self._nodes_read = len(self._nodes)
        names = {name: index for index, name in enumerate(self._node_names)}
        for rank, node in self._nodes.items():
            if node not in names:
                names[node] = len(self._node_names)
                self._node_names.append(node)
            self._node_of[rank] = names[node]
