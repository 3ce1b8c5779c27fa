"""Steps whose collectives were not recorded, as a stride or a low level asked (docs/control.md).

Of such a step its times are known and nothing about waiting: it must neither dilute what was
measured in others, nor count as a loss.
"""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.blame.timeline import PHASES, StepRow, bounds
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.medians import median_of


def is_left_out(table: Table) -> bool:
    """Whether any rank says that it did not record the collectives of this step.

    One is enough: what the others recorded lacks its part.
    """
    steps = table.flags[table.kind == RecordKind.STEP]
    return bool((steps & Flag.NO_COLLECTIVES).any())


def row_of_times(step: int, table: Table, world_size: int) -> StepRow:
    """Return when a step began on each rank and how long it took; all else is unknown."""
    begin, end = bounds(table, world_size)
    present = begin >= 0
    unknown = np.full(world_size, -1, dtype=np.int64)
    return StepRow(
        step=step,
        start_ns=begin,
        duration_ns=int(median_of((end - begin)[present])) if present.any() else 0,
        self_ns=unknown,
        wait_ns=unknown,
        comm_ns=unknown,
        phase_self_ns=np.full((world_size, PHASES), -1, dtype=np.int64),
        slowest_rank=-1,
    )
