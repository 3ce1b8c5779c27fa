"""Which findings of one run came, went or stayed in the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paceline.dataclass import dataclass

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChanges:
    """Findings as the reports have them; ``stayed`` are pairs of before and after."""

    came: list[Json]
    went: list[Json]
    stayed: list[tuple[Json, Json]]


def match_findings(
    before: Sequence[Json], after: Sequence[Json], *, same_ranks: bool, same_nodes: bool
) -> FindingChanges:
    """Match findings of one kind that accuse the same ranks, or nodes where ranks moved.

    Args:
        before: findings of the one run, the costliest first.
        after: of the other.
        same_ranks: whether rank r of one does what rank r of the other does.
        same_nodes: whether each rank runs where it ran, as far as that is known.
    """

    def same(one: Json, other: Json) -> bool:
        if one["kind"] != other["kind"]:
            return False
        if not one["ranks"] and not other["ranks"]:
            return True
        if same_ranks and set(one["ranks"]) & set(other["ranks"]):
            return True
        # A slow node that has other ranks today is the same slow node.
        moved = not (same_ranks and same_nodes)
        return moved and bool(set(_nodes(one)) & set(_nodes(other)))

    left = list(before)
    came: list[Json] = []
    stayed: list[tuple[Json, Json]] = []
    for finding in after:
        place = next((n for n, one in enumerate(left) if same(one, finding)), None)
        if place is None:
            came.append(finding)
        else:
            stayed.append((left.pop(place), finding))
    return FindingChanges(came=came, went=left, stayed=stayed)


def _nodes(finding: Json) -> list[str]:
    return [str(node) for node in finding.get("nodes") or () if node]
