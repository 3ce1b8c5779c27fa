"""Where is the network slow? The slow groups are intersected (docs/math/network.md)."""

from __future__ import annotations

from dataclasses import field

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.analysis.sets import distinct

PURE = 0.8
"""A suspect explains its lanes when at least this share of those that show a fault do; C4D asks
for a full row or column, but one lane in five may be too noisy to show it."""
MAX_PLACES = 8
LEAST_LANES = 2
"""One slow lane cannot be intersected with anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lanes:
    """L lanes: process groups, and (source, destination) pairs within them.

    Attributes:
        group: (L,) index of the group.
        source, destination: (L,) of a pair, -1 of a group.
        member_lane, member_rank: (M,) which rank takes part in which lane.
        node_of_rank: (R,) number of each rank's node, -1 unknown.
    """

    group: Int64Array
    source: Int64Array
    destination: Int64Array
    member_lane: Int64Array
    member_rank: Int64Array
    node_of_rank: Int64Array

    def __len__(self) -> int:
        """Return L."""
        return len(self.group)

    def crossing(self) -> BoolArray:
        """Return (L,) which lanes leave a node, or may: a node of theirs is unknown."""
        node = self.node_of_rank[self.member_rank]
        low = np.full(len(self), np.iinfo(np.int64).max)
        high = np.full(len(self), -1)
        np.minimum.at(low, self.member_lane, node)
        np.maximum.at(high, self.member_lane, node)
        return np.asarray((low != high) | (low < 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What slow lanes have in common.

    ``what`` is ``link``, ``sender``, ``receiver``, ``rank``, ``cable`` (what is between two
    nodes), ``node``, ``fabric`` (everything),
    or ``group`` where nothing tells which of ``ranks`` it is.
    """

    what: str
    lanes: NDArray[np.intp]
    fast_lanes: int
    ranks: list[int] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)
    links: list[list[int]] = field(default_factory=list)


def locate(lanes: Lanes, slow: BoolArray, watched: BoolArray) -> list[Place]:
    """Return the fewest places that explain the slow lanes, the largest first.

    Lanes that leave a node share NICs and links; those within one share neither with them, so
    the two kinds are looked at apart.

    Args:
        lanes: all lanes.
        slow: (L,) those that are slow.
        watched: (L,) those that would show it if they were.
    """
    crossing = lanes.crossing()
    places: list[Place] = []
    for kind in (crossing, ~crossing):
        places += _explain(lanes, slow & kind, (watched | slow) & kind, kind)
    return places


def _explain(lanes: Lanes, slow: BoolArray, watched: BoolArray, kind: BoolArray) -> list[Place]:
    places: list[Place] = []
    left = slow.copy()
    while left.any() and len(places) < MAX_PLACES:
        place = _next_place(lanes, slow, left, watched) or _single(
            lanes, left, healthy=watched & ~slow, unsure=kind & ~watched
        )
        left[place.lanes] = False
        places.append(place)
    return places


def _next_place(lanes: Lanes, slow: BoolArray, left: BoolArray, watched: BoolArray) -> Place | None:
    """Return what explains most of the lanes that are left, None where none share anything."""
    count, total = int(left.sum()), int(watched.sum())
    fast = total - int(slow.sum())
    if count >= LEAST_LANES and count >= PURE * total:
        return Place(what="fabric", lanes=np.flatnonzero(left), fast_lanes=fast)
    ranks = len(lanes.node_of_rank)
    pairs = lanes.source >= 0
    suspects = [("rank", lanes.member_lane, lanes.member_rank, ranks)]
    for what, ends in (("sender", lanes.source), ("receiver", lanes.destination)):
        suspects.append((what, np.flatnonzero(pairs), ends[pairs], ranks))
    lane, node = _nodes(lanes)
    nodes = int(lanes.node_of_rank.max(initial=0)) + 1
    lane_of, node_of = lane, node
    between, cable = _cables(lane, node, nodes)
    suspects.append(("cable", between, cable, nodes * nodes))
    suspects.append(("node", lane, node, nodes))
    best: tuple[int, str, NDArray[np.intp], Int64Array, Int64Array] | None = None
    for what, lane, who, size in suspects:
        touched = np.bincount(who, weights=watched[lane], minlength=size)
        touched_slow = np.bincount(who, weights=slow[lane], minlength=size)
        explained = np.bincount(who, weights=left[lane], minlength=size)
        explained[touched_slow < PURE * np.maximum(touched, 1)] = 0
        most = int(explained.max(initial=0))
        # Equal explanations go to the smaller thing: a NIC before its node.
        if most >= LEAST_LANES and (best is None or most > best[0]):
            best = (most, what, np.flatnonzero(explained == most), lane, who)
    if best is None:
        return None
    _, what, tied, lane, who = best
    mine = distinct(lane[(who == tied[0]) & left[lane]])
    # Others that explain as many lanes are only in doubt with it if they are the same lanes.
    shared = np.bincount(who, weights=np.isin(lane, mine) & left[lane], minlength=tied.max() + 1)
    tied = tied[shared[tied] == len(mine)]
    links = np.column_stack([lanes.source[mine], lanes.destination[mine]])[pairs[mine]]
    if what == "cable":
        both = [int(tied[0]) // nodes, int(tied[0]) % nodes]
        members = distinct(lanes.member_rank[np.isin(lanes.member_lane, mine)])
        # A node with no other traffic may as well be what is slow.
        touched = np.bincount(node_of, weights=watched[lane_of], minlength=nodes)
        sure = min(touched[both]) > len(mine)
        return Place(
            what="cable",
            lanes=mine,
            fast_lanes=fast,
            ranks=members.tolist(),
            nodes=both if sure or not len(links) else [],
            links=links.tolist(),
        )
    if what == "node":
        on_node = np.flatnonzero(np.isin(lanes.node_of_rank, tied))
        sure = "node" if len(tied) == 1 else "group"
        return Place(what=sure, lanes=mine, fast_lanes=fast, ranks=on_node.tolist(),
                     nodes=tied.tolist())  # fmt: skip
    theirs = distinct(lanes.node_of_rank[tied])
    known = theirs[theirs >= 0].tolist()
    if len(tied) > 1:
        what = "group"
    return Place(what=what, lanes=mine, fast_lanes=fast, ranks=tied.tolist(), nodes=known,
                 links=links.tolist() if what in ("sender", "receiver") else [])  # fmt: skip


def _single(lanes: Lanes, left: BoolArray, *, healthy: BoolArray, unsure: BoolArray) -> Place:
    """Return the place of one slow lane that shares no suspect with another.

    A member is suspected alone when all others take part in healthy lanes and it takes part in
    no other lane. One whose other lanes tell nothing at present (``unsure``) is not suspected more
    than those whose lanes do.
    """
    lane = int(np.flatnonzero(left)[0])
    members = lanes.member_rank[lanes.member_lane == lane]
    chosen = np.array([lane], dtype=np.intp)
    fast = int(healthy.sum())
    if len(members) == 2:
        source, destination = int(lanes.source[lane]), int(lanes.destination[lane])
        ends = [source, destination] if source >= 0 else members.tolist()
        nodes = distinct(lanes.node_of_rank[members])
        return Place(what="link", lanes=chosen, fast_lanes=fast, ranks=sorted(ends),
                     nodes=nodes[nodes >= 0].tolist(), links=[ends])  # fmt: skip
    cleared = distinct(lanes.member_rank[healthy[lanes.member_lane]])
    suspected = members[~np.isin(members, cleared)]
    untold = distinct(lanes.member_rank[unsure[lanes.member_lane]])
    if not len(suspected) or np.isin(suspected, untold).any():
        suspected = members  # the trouble lies between them, or with any of them
    nodes = distinct(lanes.node_of_rank[suspected])
    return Place(what="rank" if len(suspected) == 1 else "group", lanes=chosen, fast_lanes=fast,
                 ranks=np.sort(suspected).tolist(), nodes=nodes[nodes >= 0].tolist())  # fmt: skip


def _cables(lane: Int64Array, node: Int64Array, nodes: int) -> tuple[Int64Array, Int64Array]:
    """Return the lanes that span two nodes, and a number for those two.

    Args:
        lane: lane of each (lane, node), each once, by lane and then by node.
        node: its node.
        nodes: how many nodes there are.
    """
    first = np.flatnonzero(np.append(True, lane[1:] != lane[:-1])) if len(lane) else lane
    count = np.diff(np.append(first, len(lane)))
    two = first[count == 2]
    return lane[two], node[two] * nodes + node[np.minimum(two + 1, max(len(node) - 1, 0))]


def _nodes(lanes: Lanes) -> tuple[Int64Array, Int64Array]:
    """Return each (lane, node) once."""
    node = lanes.node_of_rank[lanes.member_rank]
    known = node >= 0
    pairs = np.unique(np.column_stack([lanes.member_lane[known], node[known]]), axis=0)
    return pairs[:, 0], pairs[:, 1]
