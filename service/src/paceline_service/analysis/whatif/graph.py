"""What waits for what in some steps, as a graph of points in time (docs/math/whatif.md).

A rank passes points one after the other: it reaches a collective, goes on after one, begins or
ends a phase. Between two points it works. A collective is over a transfer after the last of those
it waits for has reached it; a point after it comes no earlier.
"""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline.vocabulary import EXCLUSIVE_PHASES, P2P_OPS, Op, Phase, RecordKind
from paceline_service.analysis.blame.timeline import bounds
from paceline_service.analysis.channel import JudgedStep
from paceline_service.analysis.matching.device import behind_host_ns
from paceline_service.analysis.matching.match import Matches
from paceline_service.analysis.matching.order import time_order
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import one_of

_RESUME, _BOUND, _ARRIVAL, _END = range(4)
"""Points at one time follow each other like this: what comes first may have caused what follows."""
_KINDS = 4
_PHASES = np.array(sorted(EXCLUSIVE_PHASES), dtype=np.int64)
_P2P = np.array(sorted(P2P_OPS), dtype=np.int64)
_SOURCE = np.array([Op.BROADCAST, Op.SCATTER], dtype=np.int64)
_SINK = np.array([Op.REDUCE, Op.GATHER], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """P points, O operations (computations), I collectives, A arrivals at them, S steps.

    Attributes:
        rank: (P,) whose point it is.
        step: (P,) 0 to S - 1.
        previous: (P,) the point of its rank before it, -1 for the first of a step.
        work_ns: (P,) what the rank worked between the two.
        op: (P,) the operation that the work is of.
        instance: (P,) the collective that it comes after, -1 for none.
        op_kind: (O,) phase.
        op_rank: (O,) rank.
        arrival: (A,) points, those of one collective together.
        arrival_instance: (A,) ascending.
        transfer_ns: (I,) time from the last arrival to the release.
        transfer_kind: (I, 3) operation, size of the group, payload.
        took_ns: (S,) how long the steps really took, the longest of the ranks.
    """

    rank: Int64Array
    step: Int64Array
    previous: Int64Array
    work_ns: FloatArray
    op: Int64Array
    instance: Int64Array
    op_kind: Int64Array
    op_rank: Int64Array
    arrival: Int64Array
    arrival_instance: Int64Array
    transfer_ns: FloatArray
    transfer_kind: Int64Array
    took_ns: FloatArray

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.rank)


def graph_of(judged: JudgedStep) -> Graph | None:
    """Return the graph of one step, or None where it has no steps or no collective.

    A collective of which a record is missing, or whose release is unknown, binds nobody: what
    its members spent in it counts as work.
    """
    table, matches = judged.table, judged.matches
    size = len(judged.row.self_ns)
    begin, end = bounds(table, size)
    usable = _usable(matches) & (begin[matches.rows.rank] >= 0)
    if not usable.any() or not (end > begin).any():
        return None
    rows = matches.rows
    behind = behind_host_ns(rows, judged.note.on_device)
    start_ns, end_ns = rows.start_ns - behind, rows.end_ns - behind
    awaited, waits = _roles(matches)
    stops_ns = judged.waits.exposed_start_ns - behind
    joined = usable & waits & (rows.join_ns > 0) & (rows.end_ns > rows.join_ns)
    # A host that runs ahead has ended its step while its device still waits for this one.
    np.maximum.at(end, rows.rank[joined], end_ns[joined])

    arrivals = np.flatnonzero(usable & awaited)
    resumes = np.flatnonzero(joined)
    phases = np.flatnonzero(
        (table.kind == RecordKind.PHASE)
        & one_of(table.code, _PHASES)
        & (begin[table.rank] >= 0)
        & (table.end_ns > table.start_ns)
    )
    present = np.flatnonzero(begin >= 0)
    rank = np.concatenate(
        [rows.rank[resumes], table.rank[phases], table.rank[phases], rows.rank[arrivals], present]
    )
    time_ns = np.concatenate(
        [end_ns[resumes], table.start_ns[phases], table.end_ns[phases], start_ns[arrivals],
         end[present]]
    )  # fmt: skip
    kind = np.repeat(
        [_RESUME, _BOUND, _ARRIVAL, _END],
        [len(resumes), 2 * len(phases), len(arrivals), len(present)],
    )
    row = np.concatenate(
        [resumes, np.full(2 * len(phases), -1), arrivals, np.full(len(present), -1)]
    )
    time_ns = np.clip(time_ns, begin[rank], end[rank])
    order = time_order(rank, (time_ns - begin[rank]) * _KINDS + kind)
    rank, time_ns, kind, row = rank[order], time_ns[order], kind[order], row[order]
    span = int((end - begin).max()) + 1

    def axis(of: Int64Array, at_ns: Int64Array) -> Int64Array:
        return np.asarray(np.clip(at_ns - begin[of], 0, span) + of * (span + 1))

    still = np.flatnonzero(joined & (judged.waits.exposed_ns > 0))
    busy_ns = time_ns - begin[rank] - _stood_still(
        axis(rank, time_ns), axis(rows.rank[still], stops_ns[still]),
        axis(rows.rank[still], end_ns[still]), axis(rank, begin[rank]),
    )  # fmt: skip
    first = np.append(True, rank[1:] != rank[:-1])
    before = np.where(first, 0, np.append(0, busy_ns[:-1]))
    op, op_kind, op_rank = _operations(
        axis(rank, time_ns), rank, table.code[phases], table.rank[phases],
        axis(table.rank[phases], table.start_ns[phases]),
        axis(table.rank[phases], table.end_ns[phases]), size,
    )  # fmt: skip
    used, instance_of_row = np.unique(matches.instance[usable], return_inverse=True)
    instance = np.full(len(rows), -1, dtype=np.int64)
    instance[usable] = instance_of_row
    arrival = np.flatnonzero(kind == _ARRIVAL)
    arrival = arrival[np.argsort(instance[row[arrival]], kind="stable")]
    return Graph(
        rank=rank,
        step=np.zeros(len(rank), dtype=np.int64),
        previous=np.where(first, -1, np.arange(len(rank)) - 1),
        work_ns=np.maximum(busy_ns - before, 0).astype(np.float64),
        op=op,
        instance=np.where(kind == _RESUME, instance[row], -1),
        op_kind=op_kind,
        op_rank=op_rank,
        arrival=arrival,
        arrival_instance=instance[row[arrival]],
        transfer_ns=_transfer_ns(matches)[used],
        transfer_kind=_transfer_kind(matches)[used],
        took_ns=np.array([float((end - begin)[present].max())]),
    )


def joined_graphs(graphs: list[Graph]) -> Graph:
    """Return several steps as one graph; they do not depend on each other."""
    shift = {"step": 0, "previous": 0, "op": 0, "instance": 0}
    parts: dict[str, list[NDArray[np.generic]]] = {f.name: [] for f in fields(Graph)}
    for graph in graphs:
        moved = {
            "step": graph.step + shift["step"],
            "previous": np.where(graph.previous < 0, -1, graph.previous + shift["previous"]),
            "op": graph.op + shift["op"],
            "instance": np.where(graph.instance < 0, -1, graph.instance + shift["instance"]),
            "arrival": graph.arrival + shift["previous"],
            "arrival_instance": graph.arrival_instance + shift["instance"],
        }
        for name, kept in parts.items():
            kept.append(moved.get(name, getattr(graph, name)))
        shift["step"] += len(graph.took_ns)
        shift["previous"] += len(graph)
        shift["op"] += len(graph.op_kind)
        shift["instance"] += len(graph.transfer_ns)
    return Graph(**{name: np.concatenate(kept) for name, kept in parts.items()})


def _usable(matches: Matches) -> BoolArray:
    """Return which rows are of a collective that is wholly known."""
    if not len(matches.first):
        return np.zeros(len(matches.rows), dtype=np.bool_)
    released = np.minimum.reduceat(matches.rows.end_ns, matches.first) > 0
    forward = np.minimum.reduceat(matches.rows.end_ns - matches.rows.start_ns, matches.first) >= 0
    return np.asarray((matches.complete & released & forward)[matches.instance], dtype=np.bool_)


def _roles(matches: Matches) -> tuple[BoolArray, BoolArray]:
    """Return which rows others wait for, and which wait for others."""
    rows = matches.rows
    root = rows.rank == rows.peer
    source, sink = one_of(rows.code, _SOURCE), one_of(rows.code, _SINK)
    awaited = np.where(source, root, np.where(sink, ~root, True))
    waits = np.where(source, ~root, np.where(sink, root, True))
    return awaited, waits


def _transfer_ns(matches: Matches) -> FloatArray:
    """Return (I,) the shortest stay in each collective: the last arriver waits for nobody."""
    stay = matches.rows.end_ns - matches.rows.start_ns
    return np.maximum(np.minimum.reduceat(stay, matches.first), 0).astype(np.float64)


def _transfer_kind(matches: Matches) -> Int64Array:
    rows, first = matches.rows, matches.first
    code = np.where(one_of(rows.code[first], _P2P), int(Op.SEND), rows.code[first])
    count = np.diff(np.append(first, len(rows)))
    return np.stack([code, count, rows.payload_bytes[first]], axis=1)


def _stood_still(
    at: Int64Array, start: Int64Array, end: Int64Array, begin: Int64Array
) -> Int64Array:
    """Return (P,) how long each rank stood still from ``begin`` to ``at``; stops do not overlap."""
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    total = np.append(0, np.cumsum(end - start))

    def until(time: Int64Array) -> Int64Array:
        if not len(start):
            return np.zeros(len(time), dtype=np.int64)
        index = np.searchsorted(start, time, side="right")
        ahead = np.maximum(end[np.maximum(index - 1, 0)] - time, 0)
        return np.asarray(total[index] - np.where(index > 0, ahead, 0), dtype=np.int64)

    return until(at) - until(begin)


def _operations(
    at: Int64Array, rank: Int64Array, code: Int64Array, phase_rank: Int64Array,
    start: Int64Array, end: Int64Array, size: int,
) -> tuple[Int64Array, Int64Array, Int64Array]:  # fmt: skip
    """Return the operation of the work before each point, and kind and rank of the operations.

    One operation is a phase record; what lies in none of a rank is one operation of kind HOST.
    """
    order = np.argsort(start, kind="stable")
    start, end, code, phase_rank = start[order], end[order], code[order], phase_rank[order]
    host = np.arange(size) + len(start)
    op = host[rank]
    if len(start):
        # The work before a point is in the phase that began last before it, if that lasts so far.
        index = np.searchsorted(start, at, side="left") - 1
        inside = (index >= 0) & (end[index] >= at) & (phase_rank[index] == rank)
        op = np.where(inside, index, op)
    kinds = np.concatenate([code, np.full(size, int(Phase.HOST))])
    return op, kinds, np.concatenate([phase_rank, np.arange(size)])
