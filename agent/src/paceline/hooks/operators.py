"""What each ``c10d::`` operator is, and where in its arguments things lie."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.vocabulary import Op

_SUMMED_TENSORS = 64
"""Of longer lists the first tensor is taken for all: adding up 1,000 costs more than the hook."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator; positions are -1 where it has no such argument."""

    name: str
    op: Op
    group_at: int
    tensor_at: int
    """The argument whose tensors every rank of the group has (``gather_`` outputs are empty
    off the root): payload and device are read from it."""
    output_at: int
    root_at: int
    async_at: int
    times_size: bool
    """Whether the payload is that of one rank, to be multiplied by the size of the group."""


@dataclass(frozen=True, slots=True)
class _Known:
    op: Op
    tensor_at: int
    times_size: bool = False
    root: str = ""


# payload = the whole buffer of the operation, as nccl-tests counts it (docs/capture.md)
_KNOWN = {
    "allreduce_": _Known(Op.ALL_REDUCE, 0),
    "allreduce_coalesced_": _Known(Op.ALL_REDUCE, 0),
    "allgather_": _Known(Op.ALL_GATHER, 1, times_size=True),
    "allgather_coalesced_": _Known(Op.ALL_GATHER, 1, times_size=True),
    "_allgather_base_": _Known(Op.ALL_GATHER, 0),
    "allgather_into_tensor_coalesced_": _Known(Op.ALL_GATHER, 0),
    "reduce_scatter_": _Known(Op.REDUCE_SCATTER, 0, times_size=True),
    "_reduce_scatter_base_": _Known(Op.REDUCE_SCATTER, 1),
    "reduce_scatter_tensor_coalesced_": _Known(Op.REDUCE_SCATTER, 1),
    "alltoall_": _Known(Op.ALL_TO_ALL, 1),
    "alltoall_base_": _Known(Op.ALL_TO_ALL, 1),
    "barrier": _Known(Op.BARRIER, 0),
    "monitored_barrier_": _Known(Op.BARRIER, 0),
    "broadcast_": _Known(Op.BROADCAST, 0, root="root_rank"),
    "reduce_": _Known(Op.REDUCE, 0, root="root_rank"),
    "gather_": _Known(Op.GATHER, 1, times_size=True, root="root_rank"),
    "scatter_": _Known(Op.SCATTER, 0, times_size=True, root="root_rank"),
    "send": _Known(Op.SEND, 0, root="dst"),
    "recv_": _Known(Op.RECV, 0, root="src"),
    "recv_any_source_": _Known(Op.RECV, 0),
}
_NOT_COLLECTIVE = frozenset({"check_for_nan"})


def operator(name: str, arguments: list[str]) -> Operator | None:
    """Describe the operator ``c10d::name`` that has these arguments; None if it is no collective.

    An operator that is not known is still counted, as ``Op.UNKNOWN``: otherwise the
    sequence of its group would shift.
    """
    if name in _NOT_COLLECTIVE or "process_group" not in arguments:
        return None
    known = _KNOWN.get(name, _Known(Op.UNKNOWN, 0))
    return Operator(
        name=name,
        op=known.op,
        group_at=arguments.index("process_group"),
        tensor_at=known.tensor_at,
        output_at=0,
        root_at=arguments.index(known.root) if known.root in arguments else -1,
        async_at=arguments.index("async_op") if "async_op" in arguments else -1,
        times_size=known.times_size,
    )


def first_tensor(argument: Any) -> Any:
    """Return the first tensor of a tensor, a list, or a list of lists; None where there is none."""
    while type(argument) in (list, tuple):
        if not argument:
            return None
        argument = argument[0]
    return argument


def payload_reader(spec: Operator) -> Callable[[Any], int]:
    """Return what reads the payload of one rank, in bytes, from the argument ``tensor_at``."""
    if spec.op is Op.BARRIER or spec.op is Op.UNKNOWN:
        return lambda argument: 0
    return payload_bytes


def payload_bytes(argument: Any) -> int:
    """Return the bytes of a tensor, or of all in a list or a list of lists."""
    if type(argument) is list:
        if len(argument) == 1:
            argument = argument[0]
            if type(argument) is list:
                return payload_bytes(argument)
        elif len(argument) > _SUMMED_TENSORS:
            return len(argument) * payload_bytes(argument[0])
        else:
            return sum(map(payload_bytes, argument))
    try:
        size_bytes: int = argument.nbytes
    except RuntimeError:  # sparse tensors have none
        size_bytes = argument._nnz() * argument.element_size()
    return size_bytes
