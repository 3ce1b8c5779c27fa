"""What the times in dumps say about the dumps: how young what is pending is, how far apart all is.

Times of entries are of the day, by the clock of each host; nothing finer than seconds is read from
them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from paceline_service.importers.flight_recorder.dump import Dump

YOUNG_NS = 5_000_000_000
"""Jobs are dumped for a hang after minutes; what is younger than this may be of one that runs."""
APART_NS = 60_000_000_000
_GAPS = 5
_EPOCH_NS = 1_000_000_000_000_000_000


def all_young(dumps: Sequence[Dump]) -> bool:
    """Whether everything that is pending was seconds old at most when the dumps were written.

    A file's time cannot be before the dump, so it bounds the age from above; copies lose it, and
    then it says nothing.
    """
    ages = [
        dump.written_ns - entry.created_ns
        for dump in dumps
        for entry in dump.entries
        if not entry.done and entry.created_ns >= _EPOCH_NS
    ]
    return bool(ages) and max(ages) < YOUNG_NS


def fell_silent_before(dumps: Sequence[Dump], accused: Iterable[int]) -> list[tuple[int, int]]:
    """Return ranks whose newest sign is much older than what the others wait in, and by how much.

    Such a dump was taken earlier than the others, of a job that went on: then its counters are
    behind without any fault. How long a rank goes without any operation is seen from the gaps
    between those of its peers.
    """
    newest = {dump.rank: last for dump in dumps if (last := _newest(dump))}
    waiting = [
        entry.created_ns for dump in dumps for entry in dump.entries
        if not entry.done and entry.created_ns >= _EPOCH_NS
    ]  # fmt: skip
    if not waiting:
        return []
    since = float(np.median(waiting))
    usual = max(APART_NS, _GAPS * max((_longest_gap(dump) for dump in dumps), default=0))
    return [
        (rank, round(since - newest[rank]))
        for rank in accused
        if rank in newest and since - newest[rank] > usual
    ]


def _newest(dump: Dump) -> int:
    times = [
        time
        for entry in dump.entries
        for time in (entry.created_ns, entry.started_ns, entry.completed_ns)
        if time >= _EPOCH_NS
    ]
    return max(times, default=0)


def _longest_gap(dump: Dump) -> int:
    """Return the longest time between operations that are finished: the pace of the job."""
    done = [e.created_ns for e in dump.entries if e.done and e.created_ns >= _EPOCH_NS]
    times = np.array(sorted(done))
    return int(np.diff(times).max()) if len(times) > 2 else 0
