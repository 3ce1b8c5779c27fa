"""The collectives of one trace: kernels on the GPU, or Gloo's calls on the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Op
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.sets import distinct
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.args import Args
from paceline_service.importers.kineto.trace import Trace, ranks_of

_BYTES = {
    "Float": 4, "Double": 8, "Half": 2, "BFloat16": 2, "Long": 8, "Int": 4, "Short": 2,
    "Char": 1, "Byte": 1, "Bool": 1,
}  # fmt: skip
_LIBRARIES = ("nccl:", "xccl:")
_TITLE = r"\w+:(send (\d{1,7})->|recv (\d{1,7})<-)(\d{1,7})$"
"""``nccl:send 0->1``: ranks within the group, the own one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """What is written beside a collective; empty or -1 where it is not told.

    ``group_ranks`` is empty where the trace cuts it short; if the members are evenly spaced then
    ``first_rank`` and ``rank_stride`` tell them. ``source`` and ``destination`` are global ranks;
    ``own_place`` and ``peer_place`` say it of a send or receive by places within the group.
    """

    group_name: str = ""
    group_ranks: tuple[int, ...] = ()
    group_size: int = 0
    first_rank: int = -1
    rank_stride: int = 0
    elements: int = -1
    out_elements: int = -1
    dtype: str = ""
    seq: int = -1
    source: int = -1
    destination: int = -1
    own_place: int = -1
    peer_place: int = -1
    exchange: bool = False
    """Whether it is of two members of a larger group, who send each other something at once."""


_NO_LABEL = Label()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """N collectives of one rank in the order of their starts; times in ns on its clock.

    ``launch_ns`` is when the launch returned, 0 where it is not in the trace. ``op`` is UNKNOWN
    where nothing tells it. ``what`` is the kernel's function, or the call. ``silent`` counts the
    calls of a library that launched none of them.
    """

    on_host: bool
    start_ns: Int64Array
    end_ns: Int64Array
    launch_ns: Int64Array
    stream: Int64Array
    op: Int64Array
    grid: Int64Array
    what: list[str]
    labels: list[Label]
    silent: int = 0

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.start_ns)

    @property
    def payload_bytes(self) -> Int64Array:
        """What each moves; 0 where the trace does not tell."""
        return np.array(
            [max(label.elements, 0) * _bytes_of(label.dtype) for label in self.labels],
            dtype=np.int64,
        )


def collectives_of(trace: Trace) -> Calls:
    """Return the collectives of a trace: its communication kernels, else its Gloo calls."""
    if len(trace.kernels):
        return _kernels(trace)
    return _host_calls(trace)


def _kernels(trace: Trace) -> Calls:
    start, end, correlation, stream = trace.kernels.arrays()
    known, (begun, returned, thread) = trace.launch_of(correlation)
    comms = _Enclosing(trace, lambda name: name == "record_param_comms")
    named = _Enclosing(trace, lambda name: name != "record_param_comms")
    batches = _Batches(trace, thread[known], begun[known])
    order = np.lexsort((end, start))
    labels, ops = [], []
    for index in order:
        own = trace.kernel_args[index]
        call = comms.at(int(thread[index]), int(begun[index])) if known[index] else None
        args = own if own is not None and own.collective is not None else None
        if args is None and call is not None:
            args = trace.call_args[call]
        labels.append(_label(args))
        op = names.op_of(str(args.collective)) if args and args.collective else Op.UNKNOWN
        if not op and known[index]:
            outer = named.at(int(thread[index]), int(begun[index]))
            if outer is not None:
                op = names.op_of(trace.call_names[outer])
                labels[-1] = _with_places(labels[-1], trace.call_names[outer])
        op = op or names.op_of(trace.kernel_names[index])
        if not op and args is None and known[index]:
            batch = batches.at(int(thread[index]), int(begun[index]))
            labels[-1], op = batch if batch is not None else (labels[-1], op)
        ops.append(int(op))
    grid = np.array([_grid(trace.kernel_args[index]) for index in order], dtype=np.int64)
    return Calls(
        on_host=False,
        start_ns=start[order],
        end_ns=end[order],
        launch_ns=np.where(known, np.minimum(returned, start), 0)[order],
        stream=stream[order],
        op=np.array(ops, dtype=np.int64),
        grid=grid,
        what=[names.function_of(trace.kernel_names[index]) for index in order],
        labels=labels,
        silent=_silent(trace, thread[known], begun[known]),
    )


def _silent(trace: Trace, thread: Int64Array, launched_ns: Int64Array) -> int:
    """Return how many calls of collectives launched no kernel of communication."""
    titles = np.array([name.startswith(_LIBRARIES) for name in trace.call_names], dtype=np.bool_)
    start, end, where = (column[titles] for column in trace.calls.arrays())
    silent = 0
    for t in distinct(where).tolist():
        mine = where == t
        launches = np.sort(launched_ns[thread == t])
        first, last = (np.searchsorted(launches, times[mine]) for times in (start, end + 1))
        silent += int((first == last).sum())
    return silent


def _host_calls(trace: Trace) -> Calls:
    chosen = [i for i, name in enumerate(trace.call_names) if name.startswith(names.HOST_BACKENDS)]
    start, end, _ = trace.calls.arrays() if chosen else (np.zeros(0, dtype=np.int64),) * 3
    index = np.array(chosen, dtype=np.intp)
    order = index[np.lexsort((end[index], start[index]))]
    zeros = np.zeros(len(order), dtype=np.int64)
    return Calls(
        on_host=len(order) > 0,
        start_ns=start[order],
        end_ns=end[order],
        launch_ns=zeros,
        stream=zeros,
        op=np.array([int(names.op_of(trace.call_names[i])) for i in order], dtype=np.int64),
        grid=zeros - 1,
        what=[trace.call_names[i] for i in order],
        labels=[_label(trace.call_args[i]) for i in order],
    )


class _Enclosing:
    """Finds the call of the host within which something was launched, by thread."""

    def __init__(self, trace: Trace, chosen: object) -> None:
        assert callable(chosen)
        mask = [bool(chosen(name)) for name in trace.call_names]
        self._index = np.flatnonzero(np.array(mask, dtype=np.bool_))
        start, end, thread = trace.calls.arrays()
        start, end, thread = (column[self._index] for column in (start, end, thread))
        order = np.lexsort((start, thread))
        self._index, self._end = self._index[order], end[order]
        self._start, self._thread = start[order], thread[order]

    def at(self, thread: int, time_ns: int) -> int | None:
        """Return the innermost call of ``thread`` at a time, or None."""
        low, high = np.searchsorted(self._thread, (thread, thread + 1))
        found = int(low + np.searchsorted(self._start[low:high], time_ns, side="right")) - 1
        # A call that has ended may lie within one that has not: look back a little.
        for candidate in range(found, max(int(low), found - 4) - 1, -1):
            if candidate >= low and self._end[candidate] >= time_ns:
                return int(self._index[candidate])
        return None


class _Batches:
    """Finds what a batch of sends and receives moves, as far as that is one wait.

    Its calls are over when one kernel is launched for all of them. They are those since the launch
    before, on the same thread, as far as none of them launched anything itself.
    """

    def __init__(self, trace: Trace, thread: Int64Array, launched_ns: Int64Array) -> None:
        self._trace = trace
        self._launches = {
            int(t): np.sort(launched_ns[thread == t]) for t in distinct(thread).tolist()
        }
        start, end, where = trace.calls.arrays()
        self._calls: dict[int, tuple[Int64Array, Int64Array, Int64Array]] = {}
        transfers = np.array(
            [name == "record_param_comms" and _transfer(args) is not None
             for name, args in zip(trace.call_names, trace.call_args, strict=True)],
            dtype=np.bool_,
        )  # fmt: skip
        for t in self._launches:
            mine = np.flatnonzero((where == t) & transfers)
            mine = mine[np.argsort(start[mine], kind="stable")]
            self._calls[t] = (start[mine], end[mine], mine)

    def at(self, thread: int, launched_ns: int) -> tuple[Label, Op] | None:
        """Return label and operation of what was launched at a time; None where nothing tells."""
        launches = self._launches[thread]
        place = int(np.searchsorted(launches, launched_ns))
        before = int(launches[place - 1]) if place else -1
        start, end, index = self._calls[thread]
        low, high = np.searchsorted(start, (before, launched_ns), side="right").tolist()
        calls = [i for i, e in zip(index[low:high].tolist(), end[low:high], strict=True)
                 if e <= launched_ns]  # fmt: skip
        if not calls or len(calls) != high - low or len(calls) > 2:
            return None
        args = [self._trace.call_args[i] for i in calls]
        labels, ops = [_label(one) for one in args], [_transfer(one) for one in args]
        if len(calls) == 1:
            return labels[0], ops[0] or Op.UNKNOWN
        return _exchange(self._trace.rank, labels, ops)


def _transfer(args: Args | None) -> Op | None:
    """Return SEND or RECV where a call is one, else None."""
    op = names.op_of(str(args.collective)) if args is not None and args.collective else None
    return op if op in (Op.SEND, Op.RECV) else None


def _exchange(rank: int, labels: list[Label], ops: Sequence[Op | None]) -> tuple[Label, Op] | None:
    """Return what two ranks send each other at once: neither leaves before the other came."""
    if set(ops) != {Op.SEND, Op.RECV}:
        return None
    send, receive = (labels[ops.index(op)] for op in (Op.SEND, Op.RECV))
    peer = send.destination
    if peer < 0 or peer != receive.source or peer == rank:
        return None
    if send.group_name != receive.group_name:
        return None
    ranks = (min(rank, peer), max(rank, peer))
    label = Label(
        group_name=send.group_name, group_ranks=ranks, group_size=2, elements=send.elements,
        dtype=send.dtype, exchange=True,
    )  # fmt: skip
    return label, Op.ALL_TO_ALL


def _label(args: Args | None) -> Label:
    if args is None:
        return _NO_LABEL
    return Label(
        group_name="" if args.group_name is None else str(args.group_name),
        group_ranks=ranks_of(args.group_ranks),
        first_rank=_count(args.first_rank, -1),
        rank_stride=_count(args.rank_stride),
        group_size=_count(args.group_size),
        elements=_count(args.in_elements, -1),
        out_elements=_count(args.out_elements, -1),
        dtype="" if args.dtype is None else str(args.dtype),
        seq=_count(args.seq, -1),
        source=_count(args.source, -1),
        destination=_count(args.destination, -1),
    )


def _with_places(label: Label, title: str) -> Label:
    match = re.match(_TITLE, title)
    if match is None:
        return label
    return replace(label, own_place=int(match[2] or match[3]), peer_place=int(match[4]))


def _count(value: object, default: int = 0) -> int:
    return value if type(value) is int and 0 <= value < 1 << 60 else default


def _grid(args: Args | None) -> int:
    grid = args.grid if args is not None else None
    return _count(grid[0], -1) if isinstance(grid, list) and grid else -1


def _bytes_of(dtype: str) -> int:
    return _BYTES.get(dtype, 1 if dtype.startswith("Float8") else 4 if dtype else 0)
