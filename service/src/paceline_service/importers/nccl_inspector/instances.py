"""Which records of different processes are one collective: by communicator, function and number.

NCCL counts the collectives of a communicator per function (``coll_sn``), so the number says which
they are even where records between were lost. Nothing is paired by order or by time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import BARRIER_LIKE_OPS, P2P_OPS
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.nccl_inspector.processes import RankMap
from paceline_service.importers.nccl_inspector.records import COLLECTIVE_CPU, Recorded

_P2P = np.array(sorted(int(op) for op in P2P_OPS))
_BARRIER_LIKE = np.array(sorted(int(op) for op in BARRIER_LIKE_OPS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Instances:
    """M records as I collectives.

    Attributes:
        row: (M,) index into the records, those of one instance together, by place.
        instance: (M,) instance of each.
        rank: (M,) global rank of each.
        first: (I,) first of each instance.
        comm: (I,) communicator.
        func: (I,) function as written.
        op: (I,) operation.
        sn: (I,) number within communicator and function.
        payload_bytes: (I,) of the first member.
        complete: (I,) every member's record is there, and they agree.
        comparable: (I,) complete, all members leave together, and the GPU or the poller of its
            kernel gave the times: durations then tell who waited.
    """

    row: NDArray[np.intp]
    instance: NDArray[np.intp]
    rank: Int64Array
    first: NDArray[np.intp]
    comm: Int64Array
    func: Int64Array
    op: Int64Array
    sn: Int64Array
    payload_bytes: Int64Array
    complete: BoolArray
    comparable: BoolArray

    def __len__(self) -> int:
        """Return the number of instances."""
        return len(self.first)


def pair(recorded: Recorded, ranks: RankMap, faults: Faults) -> Instances:
    """Pair the collectives; what has no counterpart on every member is counted and marked."""
    op = recorded.column("op")
    sizes = np.array([c.size for c in recorded.communicators], dtype=np.int64)
    comm, place = recorded.column("comm"), recorded.column("rank")
    func, sn = recorded.column("func"), recorded.column("sn")
    wanted = (ranks.rank_of_row >= 0) & ~np.isin(op, _P2P) & (sizes[comm] > 1)
    chosen = np.flatnonzero(wanted)
    row = chosen[np.lexsort((place[chosen], sn[chosen], func[chosen], comm[chosen]))]
    same = np.zeros(len(row), dtype=np.bool_)
    same[1:] = (
        (comm[row[1:]] == comm[row[:-1]])
        & (func[row[1:]] == func[row[:-1]])
        & (sn[row[1:]] == sn[row[:-1]])
    )
    first = np.flatnonzero(~same)
    instance = np.cumsum(~same) - 1
    head = row[first]
    none = np.zeros(0, dtype=np.bool_)
    if len(first):
        count = np.diff(np.append(first, len(row)))
        sized = recorded.column("payload_bytes")[row]
        equal = np.minimum.reduceat(sized, first) == np.maximum.reduceat(sized, first)
        whole = count == sizes[comm[head]]
        complete = whole & equal
        polled = recorded.column("source")[row] == COLLECTIVE_CPU
        comparable = complete & np.isin(op[head], _BARRIER_LIKE)
        comparable &= ~np.logical_or.reduceat(polled, first)
        _tell(
            row[~whole[instance]],
            "of which other members have no record",
            ranks, faults,
        )  # fmt: skip
        _tell(
            row[(whole & ~equal)[instance]],
            "whose members tell of different sizes", ranks, faults,
        )  # fmt: skip
    else:
        complete = comparable = none
    return Instances(
        row=row, instance=instance, rank=ranks.rank_of_row[row], first=first, comm=comm[head],
        func=func[head], op=op[head], sn=sn[head],
        payload_bytes=recorded.column("payload_bytes")[head],
        complete=complete, comparable=comparable,
    )  # fmt: skip


def _tell(rows: NDArray[np.intp], message: str, ranks: RankMap, faults: Faults) -> None:
    of, count = np.unique(ranks.rank_of_row[rows], return_counts=True)
    for rank, number in zip(of.tolist(), count.tolist(), strict=True):
        noun = "collective" if number == 1 else "collectives"
        told = f"{number} {noun} {message}"
        faults.add("unpaired", ranks.paths[rank], None, told, rank=rank, count=number)
