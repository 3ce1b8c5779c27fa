"""What each class of transfers takes in good health, and the fits through its sizes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paceline_service.analysis.network.evidence import Evidence
from paceline_service.analysis.network.fit import TransferFit, busbw, fit_line
from paceline_service.analysis.network.table import BINS_PER_OCTAVE, ClassTable
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.sets import among


def sizes_of(table: ClassTable) -> FloatArray:
    """Return the size of each class in bytes, (C,); the middle of a bin where it is one."""
    code = table.payload_bytes.astype(np.float64)
    middle = np.exp2((0.5 - 1 - np.minimum(code, 0)) / BINS_PER_OCTAVE)
    return np.where(code < 0, middle, code)


def fits_of(
    table: ClassTable, evidence: Evidence, classes: NDArray[np.intp] | None = None
) -> list[TransferFit]:
    """Return the fit of every series, or of those that ``classes`` belong to.

    It goes through what each size took in good health: the centre that was learned, or the
    median so far.
    """
    if not len(table):
        return []
    wanted = np.arange(len(table))
    if classes is not None:
        wanted = np.flatnonzero(among(table.series, table.series[classes]))
    level, error = evidence.level(wanted)
    known = ~np.isnan(level)
    wanted, level, error = wanted[known], level[known], error[known]
    order = np.argsort(table.series[wanted], kind="stable")
    wanted, level, error = wanted[order], level[order], error[order]
    size = sizes_of(table)
    begin = np.flatnonzero(np.append(True, np.diff(table.series[wanted]) != 0))
    fits = []
    for part in np.split(np.arange(len(wanted)), begin[1:]):
        if not len(part):
            continue
        mine, took_ns = wanted[part], np.exp(level[part])
        line = fit_line(size[mine], took_ns, took_ns * error[part])
        largest = int(np.argmax(size[mine]))
        op, members = int(table.op[mine[0]]), int(table.members[mine[0]])
        fits.append(
            TransferFit(
                group=int(table.group[mine[0]]),
                op=op,
                source=int(table.source[mine[0]]),
                destination=int(table.destination[mine[0]]),
                members=members,
                sizes=len(mine),
                largest_bytes=int(size[mine[largest]]),
                busbw_bytes_per_s=busbw(op, members, size[mine[largest]], took_ns[largest]),
                alpha_ns=line[0] if line else None,
                beta_ns_per_byte=line[1] if line else None,
            )
        )
    return fits
