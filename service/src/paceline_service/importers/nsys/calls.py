"""NCCL's calls of one process as those that a kernel is looked up in: group, size, peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import P2P_OPS, Op
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.args import Args
from paceline_service.importers.nsys.payloads import Payload
from paceline_service.importers.nsys.ranges import Ranges

_GROUP_BEGINS, _GROUP_ENDS = "ncclGroupStart", "ncclGroupEnd"


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """A communicator as the group that its ranks know it by.

    ``ranks`` are global, in the communicator's order where ``ordered``; some may be missing where
    the file does not show all of them being made.
    """

    name: str
    ranks: tuple[int, ...]
    size: int
    ordered: bool


Find = Callable[[int], Communicator | None]


def kernel_calls(ranges: Ranges, find: Find) -> list[tuple[int, int, int, Args]]:
    """Return start, end, thread and meaning of what launched NCCL's kernels.

    What is called between ncclGroupStart and ncclGroupEnd is launched by the latter: one kernel
    may do the work of several calls, so only what they have in common is told of it.
    """
    start, end, thread = ranges.nccl.arrays()
    found = []
    depth: dict[int, int] = {}
    waiting: dict[int, list[tuple[str, Payload]]] = {}
    for row in np.lexsort((-end, start, thread)).tolist():
        name, payload, of = ranges.nccl_names[row], ranges.payloads[row], int(thread[row])
        place = (int(start[row]), int(end[row]), of)
        if name.startswith(_GROUP_BEGINS):
            depth[of] = depth.get(of, 0) + 1
        elif name.startswith(_GROUP_ENDS):
            depth[of] = max(0, depth.get(of, 0) - 1)
            if not depth[of] and (calls := waiting.pop(of, [])):
                found.append((*place, _together(calls, find)))
        elif names.op_of(name) != Op.UNKNOWN:
            if depth.get(of, 0):
                waiting.setdefault(of, []).append((name, payload))
            else:
                found.append((*place, _args(name, payload, find)))
    return found


def _args(name: str, payload: Payload, find: Find) -> Args:
    args = _of_group(payload, find)
    args.collective = name
    if payload.payload_bytes >= 0:
        # NCCL gives the size in bytes, and the same on every rank.
        args.in_elements = args.out_elements = payload.payload_bytes
        args.dtype = "Byte"
    op = names.op_of(name)
    if op == Op.SEND:
        args.destination = _peer_of(payload, find)
    elif op == Op.RECV:
        args.source = _peer_of(payload, find)
    return args


def _together(calls: Sequence[tuple[str, Payload]], find: Find) -> Args:
    if len(calls) == 1:
        return _args(*calls[0], find)
    ops = {names.op_of(name) for name, _ in calls}
    args = Args()
    if len({payload.communicator for _, payload in calls}) == 1:
        args = _of_group(calls[0][1], find)
    if ops <= P2P_OPS:
        args.collective = "alltoall" if _everyone(calls, find) else None
        if args.collective:
            args.in_elements = args.out_elements = sum(
                max(0, payload.payload_bytes)
                for name, payload in calls
                if names.op_of(name) == Op.SEND
            )
            args.dtype = "Byte"
    elif len(ops) == 1:
        args.collective = calls[0][0]
    return args


def _everyone(calls: Sequence[tuple[str, Payload]], find: Find) -> bool:
    """Whether sends and receives are those of an exchange of all with all."""
    sent = {payload.peer for name, payload in calls if names.op_of(name) == Op.SEND}
    received = {payload.peer for name, payload in calls if names.op_of(name) == Op.RECV}
    group = find(calls[0][1].communicator)
    size = max(group.size if group is not None else 0, calls[0][1].size)
    return sent == received and -1 not in sent and 2 <= size <= len(sent) + 1 and len(sent) >= 2


def _of_group(payload: Payload, find: Find) -> Args:
    group = find(payload.communicator) if payload.communicator != -1 else None
    if group is None:
        return Args()
    return Args(group_name=group.name, group_ranks=sorted(group.ranks), group_size=len(group.ranks))


def _peer_of(payload: Payload, find: Find) -> int | None:
    """Return the global rank of the peer."""
    group = find(payload.communicator) if payload.communicator != -1 else None
    if group is None or not group.ordered or not 0 <= payload.peer < len(group.ranks):
        return None
    return group.ranks[payload.peer]
