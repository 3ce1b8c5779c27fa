"""Steps of a log that has none: from the extents of the records (docs/offline.md).

The derived step ``s`` of a rank ends with the last of its records to end. It starts where the
rank's derived step ``s - 1`` ended, or, where there is none, with its first record. So steps
tile the time of a rank, as those that the hooks write do. A rank's last step gets none while
something in it is pending: it did not end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from paceline.event_log import ROW_FIELDS
from paceline.vocabulary import RecordKind
from paceline_service.analysis.records import Int64Array

_KIND, _STEP, _PEER = (ROW_FIELDS.index(name) for name in ("kind", "step", "peer"))
_START, _END = ROW_FIELDS.index("start_ns"), ROW_FIELDS.index("end_ns")


def with_derived_steps(tables: Iterable[Int64Array]) -> Iterator[Int64Array]:
    """Yield ``tables`` with a STEP row after the last record of each step.

    Args:
        tables: rows of one rank, shape (N, at least 12), without STEP rows, their steps ascending.
    """
    step, first_ns, last_ns, pending = -1, 0, 0, False
    previous_step, previous_end_ns = -2, 0
    width = len(ROW_FIELDS)

    def closed() -> Int64Array:
        start_ns = previous_end_ns if previous_step == step - 1 else first_ns
        row = np.zeros((1, width), dtype=np.int64)
        row[0, _KIND], row[0, _STEP], row[0, _PEER] = RecordKind.STEP, step, -1
        row[0, _START], row[0, _END] = start_ns, max(start_ns, last_ns)
        return row

    for table in tables:
        width = table.shape[1]
        cuts = np.flatnonzero(np.diff(table[:, _STEP])) + 1
        for part in np.split(table, cuts):
            if part[0, _STEP] != step:
                if step >= 0:
                    row = closed()
                    yield row
                    previous_step, previous_end_ns = step, int(row[0, _END])
                step = int(part[0, _STEP])
                first_ns, last_ns, pending = int(part[:, _START].min()), 0, False
            first_ns = min(first_ns, int(part[:, _START].min()))
            # A pending record (end 0) lasts at least until it started.
            last_ns = max(last_ns, int(np.maximum(part[:, _START], part[:, _END]).max()))
            pending = pending or bool((part[:, _END] == 0).any())
            yield part
    if step >= 0 and not pending:
        yield closed()
