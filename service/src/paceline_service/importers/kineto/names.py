"""What names in a trace mean: categories, c10d calls, annotations; those of kernels: kernels.py."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from paceline.vocabulary import Op, Phase
from paceline_service.importers.kineto.kernels import function_of, is_communication

__all__ = ["function_of", "is_communication", "op_of", "phase_of", "rank_of", "step_of"]

KERNEL, MEMORY, LAUNCH, CPU_OP, ANNOTATION = range(5)
CATEGORIES = {
    "kernel": KERNEL,
    "gpu_memcpy": MEMORY,
    "gpu_memset": MEMORY,
    "memcpy": MEMORY,
    "memset": MEMORY,
    "cuda_runtime": LAUNCH,
    "cuda_driver": LAUNCH,
    "xpu_runtime": LAUNCH,
    "xpu_driver": LAUNCH,
    "privateuse1_runtime": LAUNCH,
    "privateuse1_driver": LAUNCH,
    "hip_runtime": LAUNCH,
    "hip_driver": LAUNCH,
    "runtime": LAUNCH,
    "driver": LAUNCH,
    "cpu_op": CPU_OP,
    "operator": CPU_OP,
    "user_annotation": ANNOTATION,
}
"""Of categories in lower case; the short ones are those of torch before 1.12."""

CALLS = ("c10d::", "nccl:", "gloo:", "mpi:", "ucc:", "xccl:", "hccl:")
"""How calls of collectives on the host begin, beside ``record_param_comms``."""
HOST_BACKENDS = ("gloo:", "mpi:", "ucc:")
"""Those whose call is the collective, where the trace has no kernels of any."""
_STEP = re.compile(r"ProfilerStep#(\d+)$")
_NOT_A_LETTER = re.compile(r"[^a-z]")
_OPS = (
    # Kernels that are no collective, or none that waits for all: nothing is said of them.
    ("deepep", Op.UNKNOWN),
    ("userbuffers", Op.UNKNOWN),
    ("nvshmem", Op.UNKNOWN),
    ("rocshmem", Op.UNKNOWN),
    ("multimemoneshotreduce", Op.UNKNOWN),
    ("crossdevicereduce", Op.ALL_REDUCE),
    ("reducescatter", Op.REDUCE_SCATTER),
    ("allreduce", Op.ALL_REDUCE),
    ("allgather", Op.ALL_GATHER),
    ("alltoall", Op.ALL_TO_ALL),
    ("barrier", Op.BARRIER),
    ("broadcast", Op.BROADCAST),
    ("bcast", Op.BROADCAST),
    ("gather", Op.GATHER),
    ("scatter", Op.SCATTER),
    ("sendrecv", Op.UNKNOWN),
    ("reduce", Op.REDUCE),
    ("send", Op.SEND),
    ("recv", Op.RECV),
)
"""The first that a name contains; so the longer ones come first. A ``SendRecv`` kernel serves
all-to-alls as well as sends and receives."""
_PHASES = (
    (Phase.INPUT, r"^enumerate\(DataLoader\)#|\b(data[ _]?load(er|ing)?|next_batch)\b"),
    (Phase.OPTIMIZER, r"^Optimizer\.step#|^\W*optimizer([ _.]?step)?\W*$"),
    (Phase.FORWARD, r"^\W*forward\W*$|\.forward$|^\W*forward([ _]?(pass|step))\W*$"),
    (Phase.BACKWARD, r"^\W*backward\W*$|^\W*backward([ _]?(pass|step))\W*$"),
)
"""In any case; compiled by ``re`` when they are first needed."""
_RANK = (
    re.compile(r"rank[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE),
    re.compile(r"worker[-_. ]?(\d{1,6})(?!\d)", re.IGNORECASE),
)
BACKWARD_OP = "autograd::engine::evaluate_function"
"""Operators that the autograd engine runs begin with it."""


@lru_cache(maxsize=4096)
def op_of(name: str) -> Op:
    """Return the operation that a kernel, a c10d call or an annotation names."""
    letters = _NOT_A_LETTER.sub("", function_of(name).lower())
    return next((op for word, op in _OPS if word in letters), Op.UNKNOWN)


@lru_cache(maxsize=4096)
def step_of(annotation: str) -> int | None:
    """Return the number of a ``ProfilerStep#``, or None."""
    match = _STEP.match(annotation)
    return int(match[1]) if match and len(match[1]) < 10 else None


@lru_cache(maxsize=4096)
def phase_of(annotation: str) -> Phase | None:
    """Return the phase that an annotation stands for, or None."""
    return next(
        (phase for phase, pattern in _PHASES if re.search(pattern, annotation, re.IGNORECASE)), None
    )


def rank_of(path: Path) -> int | None:
    """Return the rank that a file's name tells, or None."""
    for pattern in _RANK:
        if match := pattern.search(path.name):
            return int(match[1])
    return None
