"""When each record's collective was over, as well as the files tell.

With ``NCCL_INSPECTOR_DUMP_VERBOSE=1`` the host's clock is in the record. Else there is the time at
which the line was written: the dump thread empties the rings now and then, so the lines of one
dump carry nearly one time, and what they tell of was over before it and after the dump before.
Within a dump the records of each communicator are spread evenly. Files that were written once,
when the communicator was given up, tell no time at all; then the numbers count how far the job was.
"""

from __future__ import annotations

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.nccl_inspector.records import Recorded

LEAST_DUMPS = 8
"""Of a process; with fewer the times of the lines say nothing about steps."""
TRACED, DUMPED, UNTIMED = "traced", "dumped", "untimed"
_WHOLE_RUN_NS = 1_000_000_000
_US = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """When N records ended.

    Attributes:
        known: TRACED by the host's clock, DUMPED from the times of the dumps, UNTIMED from the
            numbers alone: then ``end_ns`` is only an order.
        end_ns: (N,) on the wall clock of each host.
        bounds_ns: (N,) each, the dumps after and before which it was, where that is known.
    """

    known: str
    end_ns: Int64Array
    bounds_ns: tuple[Int64Array, Int64Array] | None = None

    @property
    def around_ns(self) -> Int64Array:
        """(N,) the middle between two dumps: off by up to half their distance, but to no side."""
        if self.bounds_ns is None:
            return self.end_ns
        since, until = self.bounds_ns
        return since + (until - since) // 2


def find_moments(recorded: Recorded) -> Moments:
    """Tell when each record ended."""
    end_us = recorded.column("end_us")
    if (end_us > 0).all():
        return Moments(known=TRACED, end_ns=end_us * _US)
    dumped = _from_dumps(recorded)
    if dumped is not None:
        return dumped
    return Moments(known=UNTIMED, end_ns=_from_numbers(recorded))


def _from_dumps(recorded: Recorded) -> Moments | None:
    process, dumped_us = recorded.column("process"), recorded.column("dumped_us")
    order = np.lexsort((np.arange(len(recorded)), dumped_us, process))
    of, at = process[order], dumped_us[order] * _US
    exec_ns = recorded.column("exec_ns")[order]
    # Two ends lie as far apart as the second took, unless both were written down later.
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (of[1:] != of[:-1]) | (2 * np.diff(at) >= np.maximum(exec_ns[1:], 2 * 50_000))
    dump = np.cumsum(new) - 1
    begin = np.flatnonzero(new)
    if np.median(np.bincount(of[begin], minlength=len(recorded.processes))) < LEAST_DUMPS:
        return None
    until = np.maximum.reduceat(at, begin)
    first_of_process = np.append(True, of[begin[1:]] != of[begin[:-1]])
    since = np.append(0, until[:-1])
    since[first_of_process] = until[first_of_process] - int(
        np.median((until - since)[~first_of_process])
    )
    place, count = _places(dump, recorded.column("comm")[order])
    spread = (place + 0.5) / count * (until - since)[dump]
    ends, after, before = np.empty((3, len(order)), dtype=np.int64)
    after[order], before[order] = since[dump], until[dump]
    ends[order] = since[dump] + spread.astype(np.int64)
    return Moments(known=DUMPED, end_ns=ends, bounds_ns=(after, before))


def _places(dump: Int64Array, comm: Int64Array) -> tuple[Int64Array, Int64Array]:
    """Return (N,) how many of the same dump and communicator are before each, and are in all."""
    by = np.lexsort((np.arange(len(dump)), comm, dump))
    new = np.ones(len(by), dtype=np.bool_)
    new[1:] = (dump[by[1:]] != dump[by[:-1]]) | (comm[by[1:]] != comm[by[:-1]])
    begin = np.flatnonzero(new)
    part = np.cumsum(new) - 1
    size = np.diff(np.append(begin, len(by)))
    place, count = np.empty((2, len(by)), dtype=np.int64)
    place[by] = np.arange(len(by)) - begin[part]
    count[by] = size[part]
    return place, count


def _from_numbers(recorded: Recorded) -> Int64Array:
    """Return (N,) how far the job was: each function's number as a share of its last one."""
    key = recorded.column("comm") * len(recorded.functions) + recorded.column("func")
    sn = recorded.column("sn")
    last = np.zeros(int(key.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(last, key, sn)
    share = (sn + 0.5) / (last[key] + 1)
    return np.asarray(share * _WHOLE_RUN_NS, dtype=np.int64)
