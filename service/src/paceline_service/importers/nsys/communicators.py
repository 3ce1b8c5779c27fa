"""Which global ranks form a communicator of NCCL, from how it was made and who uses it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import field

from paceline.dataclass import dataclass
from paceline_service.importers.nsys.calls import Communicator
from paceline_service.importers.nsys.payloads import Payload
from paceline_service.importers.nsys.ranges import Ranges
from paceline_service.importers.nsys.ranks import Process, Ranks

_RESIZED = ("ncclCommShrink", "ncclCommGrow")
"""Their numbers are of one communicator and their hash of another; they tell no places."""
_MADE = ("ncclCommInit", "ncclCommSplit")


@dataclass(slots=True)
class _Told:
    """What is told of one communicator; by global rank but for ``places``."""

    users: set[int] = field(default_factory=set)
    places: dict[int, int] = field(default_factory=dict)
    """Global rank by place."""
    size: int = 0
    keys: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Key and place within the parent, of ranks that split off from one."""


def communicators(
    ranks: Ranks, ranges: Mapping[Process, Ranges]
) -> tuple[dict[int, Communicator], int]:
    """Return the communicators by hash, and how many groups there are, known by hash or not."""
    told: dict[int, _Told] = defaultdict(_Told)
    made = 0
    for process, own in ranges.items():
        if (rank := ranks.of.get(process)) is None:
            continue
        made = max(made, sum(name.startswith(_MADE) for name in own.nccl_names))
        for name, payload in dict.fromkeys(zip(own.nccl_names, own.payloads, strict=True)):
            if payload.communicator != -1:
                _take(told, rank, payload, places=not name.startswith(_RESIZED))
    everyone = ranks.world_size in (0, len(ranks.of))
    found = {number: _communicator(number, own, ranks.world_size, everyone)
             for number, own in told.items()}  # fmt: skip
    used = sum(len(one.ranks) > 1 for one in found.values())
    return found, max(made, used)


def _take(told: dict[int, _Told], rank: int, payload: Payload, *, places: bool) -> None:
    own = told[payload.communicator]
    own.users.add(rank)
    of = own
    if payload.parent != -1:
        own.keys[rank] = (payload.key, payload.position)
        of = told[payload.parent]
        of.users.add(rank)
    if places and payload.position >= 0:
        of.places[payload.position] = rank
        of.size = max(of.size, payload.size)


def _communicator(number: int, own: _Told, world_size: int, everyone: bool) -> Communicator:
    size = own.size or len(own.users)
    if len(own.places) == size and max(own.places, default=-1) < size:
        ranks, ordered = tuple(own.places[place] for place in range(size)), True
    elif own.size and own.size == world_size:
        ranks, ordered = tuple(range(world_size)), True
    else:
        # Of ranks that split off all are seen only where all ranks of the job are.
        ordered = everyone and set(own.keys) == own.users
        ranks = tuple(sorted(own.users, key=lambda rank: (own.keys.get(rank, (0, 0)), rank)))
    return Communicator(
        name=f"comm {number & (1 << 64) - 1:#x}", ranks=ranks, size=size, ordered=ordered
    )
