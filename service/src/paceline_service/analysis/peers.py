"""Which ranks do the same work and may be compared (docs/math/peers.md)."""

from __future__ import annotations

from collections import Counter

import numpy as np

from paceline_service.analysis.groups import Members
from paceline_service.analysis.matching import Matches
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.stages import find_places

SIGNATURE_STEPS = 8
"""How many steps a rank's role is read from; the most frequent signature wins."""


class PeerFinder:
    """Learns each rank's role from what it issues: the collectives of a step, counted.

    Two ranks are peers when they issue the same number of each operation in groups of the
    same size. The names of the groups do not matter: tensor-parallel group 0 and 1 are peers.
    """

    def __init__(self, world_size: int) -> None:
        self._signatures: list[Counter[bytes]] = [Counter() for _ in range(world_size)]
        self._steps = 0
        self._groups: list[Int64Array] | None = None
        self._stage = np.full(world_size, -1, dtype=np.int64)

    def learn(self, matches: Matches, members: Members) -> None:
        """Read one step; without effect once the roles are settled."""
        if self._steps >= SIGNATURE_STEPS or not len(matches.rows):
            return
        self._steps += 1
        rows = matches.rows
        places = find_places(rows, len(self._signatures))
        if places is not None:
            # Stages may issue the same and hold layers of different weight.
            self._stage = places.stage
        # Who is the root does not matter: a broadcast's root computes what the others do.
        kind = np.stack([rows.rank, rows.code, members.sizes[rows.group]], axis=1)
        kinds, counts = np.unique(kind, axis=0, return_counts=True)
        table = np.column_stack([kinds[:, 1:], counts])
        begin = np.flatnonzero(np.append(True, kinds[1:, 0] != kinds[:-1, 0]))
        for part, first in zip(np.split(table, begin[1:]), begin, strict=True):
            self._signatures[int(kinds[first, 0])][part.tobytes()] += 1
        self._groups = None

    def groups(self) -> list[Int64Array]:
        """Return the peer groups, each an ascending array of global ranks."""
        if self._groups is None:
            roles: dict[tuple[bytes, int], list[int]] = {}
            for rank, seen in enumerate(self._signatures):
                role = seen.most_common(1)[0][0] if seen else b""
                roles.setdefault((role, int(self._stage[rank])), []).append(rank)
            self._groups = [np.array(ranks, dtype=np.int64) for ranks in roles.values()]
        return self._groups
