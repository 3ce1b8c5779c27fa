"""Who is missing: the counters and pending operations of dumps, as the diagnosis wants them."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import Op
from paceline_service.analysis.standstill.diagnose import Culprits, diagnose
from paceline_service.analysis.standstill.waiting import Came, Waiting, waiting_of
from paceline_service.importers.flight_recorder.dump import Dump
from paceline_service.importers.flight_recorder.layout import Layouts

ENOUGH = 0.5
"""Ranks without a dump are suspected only where more than this share of all ranks dumped."""


def find_suspects(
    dumps: list[Dump], layouts: Layouts, world_size: int, known: set[int], named: set[int]
) -> tuple[list[Culprits], Waiting]:
    """Return the culprits: of ranks that dumped, else of those that did not.

    Args:
        dumps: all that were read.
        layouts: their groups.
        world_size: R.
        known: ranks that dumped.
        named: ranks that must exist.
    """
    directed = {
        layouts.of_dump[dump.rank].get(entry.pg_id, -1)
        for dump in dumps for entry in dump.entries if entry.is_p2p
    }  # fmt: skip
    directed |= {
        at for at, (_, desc, _) in enumerate(layouts.groups) if "PIPELINE_MODEL_PARALLEL" in desc
    }
    came = _came(dumps, layouts, directed)
    collectives, pairs = _waiting(dumps, layouts, directed)
    there = [np.array([r for r in ranks if r in known]) for ranks in layouts.members]
    everyone = [np.array(ranks) for ranks in layouts.members]
    waiting = waiting_of(collectives)
    # Sends and receives count each for itself, so they accuse only where nothing else does; and
    # a rank without a dump is suspected only where no other explains the rest.
    ways = [(collectives, there), (collectives + pairs, there)]
    if len(known) > len(known | named) * ENOUGH:
        ways.append((collectives + pairs, everyone))
    for rows, members in ways:
        waiting = waiting_of(rows)
        if found := diagnose(waiting, came, members, world_size, 0):
            return found, waiting
    return [], waiting


def _came(dumps: list[Dump], layouts: Layouts, directed: set[int]) -> Came:
    rows = []
    for dump in dumps:
        mine = layouts.of_dump[dump.rank]
        for number, at in mine.items():
            if at in directed:
                continue
            issued, finished = dump.counters.get(number, (-1, -1))
            entries = [e for e in dump.entries if e.pg_id == number and not e.is_p2p]
            issued = max([issued, *(e.seq for e in entries)])
            finished = max([finished, *(e.seq for e in entries if e.done)])
            rows.append((dump.rank, at, issued, finished))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Came(rank=table[:, 0], group=table[:, 1], issued=table[:, 2], released=table[:, 3])


def _waiting(
    dumps: list[Dump], layouts: Layouts, directed: set[int]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the pending collectives, and the pending sends and receives."""
    collectives: list[tuple[int, ...]] = []
    pairs: list[tuple[int, ...]] = []
    for dump in dumps:
        for entry in dump.entries:
            at = layouts.of_dump[dump.rank].get(entry.pg_id)
            if entry.done or at is None:
                continue
            row = (dump.rank, at, int(entry.op), entry.seq, -1, -1, entry.payload_bytes, -1)
            if not entry.is_p2p and at not in directed:
                collectives.append(row)
            elif entry.pair is not None and entry.op in (Op.SEND, Op.RECV):
                ranks = layouts.groups[at][2]
                peer = entry.pair[1]
                if peer < len(ranks):
                    # Their numbers count positions: two sides are a pair when both are pending.
                    pairs.append((*row[:3], 0, -1, ranks[peer], entry.payload_bytes, -1))
    return collectives, pairs
