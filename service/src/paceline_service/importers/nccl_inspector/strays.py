"""Single records that contradict all others about who wrote them: damaged, and left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.nccl_inspector.records import Recorded

FEW_SHARE = 0.05
"""Of the records of one place in a communicator; who has more of them is no accident."""


def without_strays(recorded: Recorded, faults: Faults) -> Recorded:
    """Leave out records by which one place is several processes, or a process several places.

    A damaged line can say anything. What a twentieth of the records of a place or a process says
    against the others is not believed; more is looked at by ``processes``.
    """
    comm, rank, process = (recorded.column(name) for name in ("comm", "rank", "process"))
    few = _few(comm, rank, process) | _few(comm, process, rank)
    few |= _few(np.zeros_like(process), process, comm, of_all=True)
    if not few.any():
        return recorded
    for one in np.unique(process[few]).tolist():
        count = int((few & (process == one)).sum())
        message = "a record that contradicts the others about its process, rank or communicator"
        faults.add("contradiction", recorded.processes[one].path, None, message, count=count)
    return replace(recorded, table=recorded.table[~few])


def _few(
    outer: Int64Array, inner: Int64Array, said: Int64Array, *, of_all: bool = False
) -> BoolArray:
    """Return which rows say something that few rows of the same (outer, inner) say.

    With ``of_all`` only what is said by nobody else either, in few rows.
    """
    pair = _numbers(np.stack([outer, inner], axis=1))
    whole = np.bincount(pair)
    triple = _numbers(np.stack([pair, said], axis=1))
    part = np.bincount(triple)
    few = part[triple] <= FEW_SHARE * whole[pair]
    if of_all:
        few &= np.bincount(said)[said] == part[triple]
    return np.asarray(few)


def _numbers(keys: Int64Array) -> NDArray[np.intp]:
    _, number = np.unique(keys, axis=0, return_inverse=True)
    return np.asarray(number.reshape(-1))
