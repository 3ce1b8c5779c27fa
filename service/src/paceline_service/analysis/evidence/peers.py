"""Which ranks do the same work and may be compared (docs/math/peers.md)."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import P2P_OPS, Op
from paceline_service.analysis.evidence.roles import stages
from paceline_service.analysis.evidence.stages import find_places
from paceline_service.analysis.matching.groups import Members
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import one_of

SIGNATURE_STEPS = 8
"""How many steps a rank's role is read from; the most frequent signature wins."""
CHECK_STEPS = 16
"""How often it is looked at again whether the roles still hold."""
CHANGED_RATIO = 0.25
"""So many ranks must do other work than their peers before the roles are read anew: lost records
change the signature of a few."""
CHANGED_CHECKS = 2
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_OPS = 2 * len(Op)


class PeerFinder:
    """Learns each rank's role from what it issues: the collectives of a step, counted.

    Two ranks are peers when they issue the same number of each operation in groups of the
    same size, send and receive as often up and down, and stand in the same stage of their
    pipelines. The names of the groups do not matter: tensor-parallel group 0 and 1 are peers.
    """

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._signatures: list[Int64Array] = []
        self._steps = 0
        self._changed = 0
        self._groups: list[Int64Array] | None = None

    def learn(self, matches: Matches, members: Members) -> None:
        """Read one step; most are skipped once the roles are settled."""
        if not len(matches.rows):
            return
        self._steps += 1
        if len(self._signatures) >= SIGNATURE_STEPS:
            if self._steps % CHECK_STEPS == 0:
                self._check(signatures(matches.rows, members, self._world_size))
            return
        self._signatures.append(signatures(matches.rows, members, self._world_size))
        if len(self._signatures) == SIGNATURE_STEPS or not self._changed:
            self._groups = None

    def groups(self) -> list[Int64Array]:
        """Return the peer groups, each an ascending array of global ranks."""
        if self._groups is None:
            role = _most_frequent(self._signatures, self._world_size)
            order = np.argsort(role, kind="stable")
            cuts = np.flatnonzero(np.diff(role[order])) + 1
            self._groups = sorted(np.split(order, cuts), key=lambda ranks: int(ranks[0]))
            self._changed = 0
        return self._groups

    def _check(self, seen: Int64Array) -> None:
        """Read the roles anew when the ranks no longer do what their peers do."""
        odd = 0
        for ranks in self.groups():
            role = _mode(seen[ranks])
            odd += int((seen[ranks] != role).sum())
        self._changed = self._changed + 1 if odd > CHANGED_RATIO * self._world_size else 0
        if self._changed >= CHANGED_CHECKS:
            self._signatures = []


def signatures(rows: Table, members: Members, world_size: int) -> Int64Array:
    """Return (R,) a number for what each rank issued in one step, equal for equal work."""
    pair = one_of(rows.code, _P2P)
    # Who is the root does not matter: a broadcast's root computes what the others do.
    upward = pair & (rows.peer > rows.rank)
    size, size_of_group = np.unique(members.sizes, return_inverse=True)
    kind = size_of_group[rows.group] * _OPS + rows.code * 2 + upward
    used = np.flatnonzero(np.bincount(kind))
    column = np.zeros(int(used[-1]) + 1, dtype=np.int64)
    column[used] = np.arange(len(used))
    counts = np.bincount(
        rows.rank * len(used) + column[kind], minlength=world_size * len(used)
    ).reshape(world_size, len(used))
    weights = _mixed(size[used // _OPS] * _OPS + used % _OPS)
    seen = counts @ weights
    if pair.any():
        exchanges = rows.take(pair)
        places = find_places(exchanges, world_size)
        # Stages may issue the same and hold layers of different weight.
        stage = places.stage if places is not None else stages(exchanges, world_size)
        seen = seen + (stage + 1) * _mixed(np.array([-1]))[0]
    return np.asarray(seen, dtype=np.int64)


def _mixed(values: Int64Array) -> Int64Array:
    """Return well scattered numbers for small ones (the finalizer of SplitMix64)."""
    mixed = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))).astype(np.int64)


def _most_frequent(seen: list[Int64Array], world_size: int) -> Int64Array:
    """Return (R,) each rank's most frequent signature, the earliest of equally frequent ones."""
    if not seen:
        return np.zeros(world_size, dtype=np.int64)
    stacked = np.stack(seen)
    times = (stacked[:, None] == stacked[None, :]).sum(axis=1)
    best = np.argmax(times, axis=0)
    return np.asarray(stacked[best, np.arange(world_size)])


def _mode(values: Int64Array) -> int:
    found, counts = np.unique(values, return_counts=True)
    return int(found[np.argmax(counts)])
