"""Which ranks tell the story: all of a small job, some of a large one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SLOW, SLOWEST, MEDIAN, FASTEST = "slow", "slowest", "median", "fastest"
"""Why a lane is shown; ``slow`` is said of ranks that a finding names, and of no others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of a drawing: a rank, or the mean of the ranks of a node."""

    name: str
    ranks: tuple[int, ...]
    node: str = ""
    role: str = ""


def all_lanes(world_size: int, nodes: Mapping[int, str], flagged: Collection[int]) -> list[Lane]:
    """Return a lane for each rank, ascending."""
    return [_rank(rank, nodes, SLOW if rank in flagged else "") for rank in range(world_size)]


def telling_lanes(
    self_ns: NDArray[np.float64], nodes: Mapping[int, str], flagged: Collection[int], rows: int
) -> list[Lane]:
    """Return up to ``rows`` lanes: named ranks, then the slowest, the median, the fastest.

    Args:
        self_ns: mean self time of every rank (R,), NaN where nothing is known.
        nodes: of ranks, as far as known.
        flagged: ranks that findings name.
        rows: how many; at least four, so that each kind has one.
    """
    rows = max(rows, 4)
    known = np.flatnonzero(~np.isnan(self_ns))
    order = known[np.argsort(-self_ns[known], kind="stable")].tolist()
    named = [rank for rank in order if rank in flagged]
    named += [rank for rank in sorted(flagged) if rank < len(self_ns) and rank not in set(order)]
    named = named[: max(rows * 2 // 5, 1)]
    rest = [rank for rank in order if rank not in flagged]
    left = rows - len(named)
    if len(rest) <= left:
        return [_rank(rank, nodes, SLOW) for rank in named] + [
            _rank(rank, nodes, "") for rank in rest
        ]
    counts = (left - left // 3 - max((left - 1) // 3, 1), max((left - 1) // 3, 1), left // 3)
    first, middle, last = (max(count, 1) for count in counts)
    start = max(len(rest) // 2 - middle // 2, first)
    lanes = [_rank(rank, nodes, SLOW) for rank in named]
    lanes += [_rank(rank, nodes, SLOWEST) for rank in rest[:first]]
    lanes += [_rank(rank, nodes, MEDIAN) for rank in rest[start : start + middle]]
    return lanes + [_rank(rank, nodes, FASTEST) for rank in rest[-last:]]


def node_lanes(
    self_ns: NDArray[np.float64], nodes: Mapping[int, str], flagged: Collection[int]
) -> list[Lane]:
    """Return a lane for each node: first those with a named rank, then the slowest on average."""
    members: dict[str, list[int]] = {}
    for rank in range(len(self_ns)):
        members.setdefault(nodes.get(rank, ""), []).append(rank)
    rows = []
    for node, ranks in members.items():
        known = self_ns[ranks]
        known = known[~np.isnan(known)]
        mean_ns = float(known.mean()) if len(known) else -1.0
        slow = any(rank in flagged for rank in ranks)
        name = node or "node unknown"
        lane = Lane(name=name, ranks=tuple(ranks), node=node, role=SLOW if slow else "")
        rows.append((not slow, -mean_ns, ranks[0], lane))
    return [row[-1] for row in sorted(rows, key=lambda row: row[:3])]


def named_ranks(findings: Sequence[Mapping[str, object]]) -> set[int]:
    """Return every rank that a finding accuses."""
    named: set[int] = set()
    for finding in findings:
        ranks = finding.get("ranks")
        if isinstance(ranks, (list, tuple)):
            named.update(rank for rank in ranks if isinstance(rank, int))
    return named


def _rank(rank: int, nodes: Mapping[int, str], role: str) -> Lane:
    return Lane(name=f"rank {rank}", ranks=(rank,), node=nodes.get(rank, ""), role=role)
