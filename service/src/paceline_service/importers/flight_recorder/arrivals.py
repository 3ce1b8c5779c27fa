"""Who arrived last at finished collectives, where the recorder measured how long each took.

Only durations are used: those of one collective on its members end together, so the shortest is
that of the last arriver, whatever the clocks show. They exist with TORCH_NCCL_ENABLE_TIMING=1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from paceline.vocabulary import BARRIER_LIKE_OPS
from paceline_service.analysis.blame.arrivals import LastArrivals, last_arrivals, nobody
from paceline_service.importers.flight_recorder.dump import Dump
from paceline_service.importers.flight_recorder.layout import Layouts

_SHOWN = 8


def arrivals_of(dumps: Sequence[Dump], layouts: Layouts, world_size: int) -> LastArrivals:
    """Return the sums over all collectives that every member's dump holds with its duration."""
    durations: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    batched: set[tuple[int, int]] = set()
    for dump in dumps:
        mine = layouts.of_dump[dump.rank]
        for entry in dump.entries:
            at = mine.get(entry.pg_id)
            if at is None or entry.is_p2p or entry.op not in BARRIER_LIKE_OPS:
                continue
            if dump.rank in durations[at, entry.seq]:
                batched.add((at, entry.seq))
            if entry.done and entry.duration_ns:
                durations[at, entry.seq][dump.rank] = entry.duration_ns
    tables: dict[int, list[list[int]]] = defaultdict(list)
    for (at, seq), own in durations.items():
        members = layouts.members[at]
        if (at, seq) not in batched and len(own) == len(members) > 1:
            tables[at].append([own[rank] for rank in members])
    sums = nobody(world_size)
    for at, rows in tables.items():
        table = np.array(rows, dtype=np.int64)
        ranks = np.array(layouts.members[at], dtype=np.int64)
        sums += last_arrivals(ranks, table, np.full_like(table, -1), world_size)
    return sums


def told(arrivals: LastArrivals) -> list[str]:
    """Return a sentence about who arrived last; none where nobody waited."""
    order = [int(r) for r in np.argsort(-arrivals.caused_ns, kind="stable")[:_SHOWN]]
    parts = [
        f"rank {rank} {arrivals.caused_ns[rank] / 1e6:,.1f} ms (last at {arrivals.last[rank]})"
        for rank in order
        if arrivals.caused_ns[rank] > 0
    ]
    if not parts:
        return []
    return [
        f"of {arrivals.total_ns / 1e6:,.1f} ms of waiting in {arrivals.collectives:,} finished "
        f"collectives that all members' dumps hold with their duration, caused by arriving last: "
        f"{', '.join(parts)}; a few collectives are no evidence of a slow rank"
    ]


def facts_of_arrivals(arrivals: LastArrivals) -> list[dict[str, Any]]:
    """Return the entries of ``last_arrivers``, by caused wait."""
    return [
        {
            "rank": int(rank),
            "collectives": int(arrivals.last[rank]),
            "caused_wait_ns": int(arrivals.caused_ns[rank]),
        }
        for rank in np.argsort(-arrivals.caused_ns, kind="stable")
        if arrivals.caused_ns[rank] > 0
    ]
