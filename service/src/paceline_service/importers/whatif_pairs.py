"""Which sends and receives of a what-if trace are one transfer between two pipeline stages."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.whatif_columns import TraceColumns

FORWARD, BACKWARD = 0, 1
SYNC_ERROR_NS = 500_000
"""How far the aligned clocks of such traces may be off (DETECTION section 2)."""
_STREAMS = (
    # operation as it is named, direction, is it a send, chunk of the other side
    ("forward-send", FORWARD, True, 1),
    ("forward-recv", FORWARD, False, -1),
    ("backward-send", BACKWARD, True, -1),
    ("backward-recv", BACKWARD, False, 1),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfers:
    """One side each of M transfers; (M,) columns.

    Attributes:
        row: operation of the trace.
        direction: FORWARD or BACKWARD.
        send: whether this side sends.
        source: global rank that sends.
        destination: global rank that receives.
        ordinal: how many transfers this link made before in this step.
        unpaired: operations of links whose two sides disagree about their number.
    """

    row: NDArray[np.intp]
    direction: Int64Array
    send: NDArray[np.bool_]
    source: Int64Array
    destination: Int64Array
    ordinal: Int64Array
    unpaired: int


def pair_transfers(trace: TraceColumns, rank_of: Int64Array, tensor_rank: Int64Array) -> Transfers:
    """Pair the k-th send of a link in a step with its k-th receive.

    That is pairing by order, so it is done only where both sides of the link report the same
    number of transfers in that step; else none of them is used.

    Args:
        trace: all operations.
        rank_of: (D, S, T) global rank by data-parallel rank, stage and tensor-parallel rank; -1.
        tensor_rank: (N,) the last of these of each operation.
    """
    stages = rank_of.shape[1]
    chunks = max(stages, int(trace.chunk.max(initial=-1)) + 1)
    parts: list[tuple[Int64Array, ...]] = []
    for name, direction, send, towards in _STREAMS:
        rows = np.flatnonzero(np.array([name in n for n in trace.names])[trace.optype])
        if chunks > stages:
            rows, chunk = _chunks(trace, rows, direction, send)
        else:
            chunk = trace.stage[rows]
        real = (chunk + towards >= 0) & (chunk + towards < chunks)
        rows = rows[real]
        peer = rank_of[trace.dp_rank[rows], (trace.stage[rows] + towards) % stages,
                       tensor_rank[rows]]  # fmt: skip
        rows, peer = rows[peer >= 0], peer[peer >= 0]
        own = trace.rank[rows]
        source, destination = (own, peer) if send else (peer, own)
        ordinal = _ordinal(trace.step[rows], source, destination)
        full = np.full(len(rows), direction, dtype=np.int64)
        parts.append((rows, full, np.full(len(rows), send), source, destination, ordinal))
    row, way, sends, source, destination, ordinal = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    link = np.stack([trace.step[row], way, source, destination], axis=1)
    _, of_link = np.unique(link, axis=0, return_inverse=True)
    balance = np.bincount(of_link.reshape(-1), weights=np.where(sends, 1, -1))
    keep = balance[of_link.reshape(-1)] == 0 if len(row) else np.zeros(0, dtype=np.bool_)
    return Transfers(
        row=row[keep], direction=way[keep], send=sends[keep].astype(np.bool_), source=source[keep],
        destination=destination[keep], ordinal=ordinal[keep], unpaired=int((~keep).sum()),
    )  # fmt: skip


def _ordinal(step: Int64Array, source: Int64Array, destination: Int64Array) -> Int64Array:
    """Return how many rows before each are of the same link and step; they are in time order."""
    if not len(step):
        return np.zeros(0, dtype=np.int64)
    order = np.lexsort((destination, source, step))
    keys = np.stack([step, source, destination], axis=1)[order]
    first = np.append(True, (keys[1:] != keys[:-1]).any(axis=1))
    begin = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    ordinal = np.empty(len(order), dtype=np.int64)
    ordinal[order] = np.arange(len(order)) - begin
    return ordinal


def _chunks(
    trace: TraceColumns, rows: NDArray[np.intp], direction: int, send: bool
) -> tuple[NDArray[np.intp], Int64Array]:
    """Return the rows that belong to a computation, and the model chunk of it.

    With several chunks on a rank a transfer does not name its chunk. The k-th transfer belongs
    to the k-th computation; a receive after the last computation began and a send before the
    first one ended move nothing, and the first receive of a rank may be missing.
    """
    kept: list[NDArray[np.intp]] = []
    chunks: list[Int64Array] = []
    computing = "forward-compute" if direction == FORWARD else "backward-compute"
    computations = np.flatnonzero(trace.is_a(computing))
    of_step = dict(_by_rank_and_step(trace, computations))
    for key, some in _by_rank_and_step(trace, rows):
        work = of_step.get(key)
        if work is None:
            continue
        if send:
            some = some[trace.end_ns[some] >= trace.end_ns[work].min() - SYNC_ERROR_NS]
        else:
            some = some[trace.start_ns[some] <= trace.start_ns[work].max() + SYNC_ERROR_NS]
        missing = len(work) - len(some)
        if missing == 1:
            work = work[:-1] if send else work[1:]
        elif missing:
            continue
        kept.append(some)
        chunks.append(trace.chunk[work])
    if not kept:
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
    return np.concatenate(kept), np.concatenate(chunks)


def _by_rank_and_step(
    trace: TraceColumns, rows: NDArray[np.intp]
) -> Iterator[tuple[tuple[int, int], NDArray[np.intp]]]:
    """Yield the rows of each rank and step; the trace is in that order."""
    if not len(rows):
        return
    rank, step = trace.rank[rows], trace.step[rows]
    cuts = np.flatnonzero((rank[1:] != rank[:-1]) | (step[1:] != step[:-1])) + 1
    for part in np.split(rows, cuts):
        yield (int(trace.rank[part[0]]), int(trace.step[part[0]])), part
