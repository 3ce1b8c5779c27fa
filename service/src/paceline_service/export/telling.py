"""Which ranks tell the story: all of a small job, some of a large one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass

SLOWEST, MEDIAN, FASTEST = "slowest", "median", "fastest"
"""Why a lane is shown of which no finding speaks."""
_WORDS = {
    "straggler": "slow", "stage_imbalance": "slow", "communication": "network", "hang": "missing",
    "desync": "differs",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One line of a drawing: a rank, or the mean of the ranks of a node."""

    name: str
    ranks: tuple[int, ...]
    node: str = ""
    role: str = ""
    """Why it is shown, in a word; of a named rank what is wrong with it."""
    named: bool = False
    """Whether a finding accuses it."""


def all_lanes(world_size: int, nodes: Mapping[int, str], flagged: Mapping[int, str]) -> list[Lane]:
    """Return a lane for each rank, ascending."""
    return [_rank(rank, nodes, flagged) for rank in range(world_size)]


def telling_lanes(
    self_ns: NDArray[np.float64], nodes: Mapping[int, str], flagged: Mapping[int, str], rows: int
) -> list[Lane]:
    """Return up to ``rows`` lanes: named ranks, then the slowest, the median, the fastest.

    Args:
        self_ns: mean self time of every rank (R,), NaN where nothing is known.
        nodes: of ranks, as far as known.
        flagged: ranks that findings name, with what is wrong, in a word.
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
        return [_rank(rank, nodes, flagged) for rank in [*named, *rest]]
    counts = (left - left // 3 - max((left - 1) // 3, 1), max((left - 1) // 3, 1), left // 3)
    first, middle, last = (max(count, 1) for count in counts)
    start = max(len(rest) // 2 - middle // 2, first)
    lanes = [_rank(rank, nodes, flagged) for rank in named]
    lanes += [_rank(rank, nodes, flagged, SLOWEST) for rank in rest[:first]]
    lanes += [_rank(rank, nodes, flagged, MEDIAN) for rank in rest[start : start + middle]]
    return lanes + [_rank(rank, nodes, flagged, FASTEST) for rank in rest[-last:]]


def node_lanes(
    self_ns: NDArray[np.float64], nodes: Mapping[int, str], flagged: Mapping[int, str]
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
        role = next((flagged[rank] for rank in ranks if rank in flagged), "")
        name = node or "node unknown"
        lane = Lane(name=name, ranks=tuple(ranks), node=node, role=role, named=bool(role))
        rows.append((not role, -mean_ns, ranks[0], lane))
    return [row[-1] for row in sorted(rows, key=lambda row: row[:3])]


def named_ranks(findings: Sequence[Mapping[str, Any]]) -> dict[int, str]:
    """Return every rank that a finding accuses, with what is wrong with it in a word."""
    named: dict[int, str] = {}
    for finding in findings:
        word = _WORDS.get(str(finding.get("kind")), "named")
        for rank in finding.get("ranks") or ():
            named.setdefault(rank, word)
    return named


def _rank(rank: int, nodes: Mapping[int, str], flagged: Mapping[int, str], role: str = "") -> Lane:
    return Lane(
        name=f"rank {rank}", ranks=(rank,), node=nodes.get(rank, ""),
        role=flagged.get(rank, role), named=rank in flagged,
    )  # fmt: skip
