"""Windows: what every rank did over some steps, summed, for heatmaps (``rank_windows``)."""

from __future__ import annotations

import numpy as np

from paceline_service.analysis.blame.timeline import StepDetail, StepRow

SPAN_S = 10.0
ROWS_PER_S = 100
"""Of one attempt: with more than a thousand ranks the windows are longer."""

WindowRow = tuple[int, ...]
"""In the order of ``COLUMNS``."""
COLUMNS = (
    "start_wall_ns", "rank", "end_wall_ns", "first_step", "last_step", "steps", "self_ns",
    "wait_ns", "communication_ns", "caused_wait_ns", "blamed_wait_ns", "last_arrivals",
)  # fmt: skip
_SUMS = len(COLUMNS) - COLUMNS.index("steps")


class Windows:
    """Sums the steps of one attempt; a window closes when its span is over."""

    def __init__(self, world_size: int, first_seen_wall_ns: int) -> None:
        self._span_ns = int(max(SPAN_S, world_size / ROWS_PER_S) * 1e9)
        self._sums = np.zeros((_SUMS, world_size), dtype=np.int64)
        self._first_step = -1
        self._last_step = -1
        self._start_wall_ns = -1
        self._end_wall_ns = first_seen_wall_ns
        """Where the time of a step is unknown, it begins where the one before ended."""
        self.mean_self_ns = np.full(world_size, -1, dtype=np.int64)
        """Self time per step of the window that closed last, (R,), -1 where a rank had no data."""

    def add(self, row: StepRow, detail: StepDetail, start_wall_ns: int) -> list[WindowRow]:
        """Take a step; return the rows of the window before, if this step opens another."""
        begins_ns = max(start_wall_ns, self._start_wall_ns + 1)
        if start_wall_ns < 0:
            begins_ns = self._end_wall_ns
        closed: list[WindowRow] = []
        if self._first_step >= 0 and begins_ns - self._start_wall_ns >= self._span_ns:
            closed = self.close()
        if self._first_step < 0:
            self._first_step, self._start_wall_ns = row.step, begins_ns
        self._last_step, self._end_wall_ns = row.step, begins_ns + max(row.duration_ns, 1)
        here = row.present
        for number, values in enumerate(
            (here, row.self_ns, row.wait_ns, row.comm_ns, detail.caused_ns, detail.blamed_ns,
             detail.last_count)
        ):  # fmt: skip
            self._sums[number, here] += values[here].astype(np.int64)
        return closed

    def close(self) -> list[WindowRow]:
        """Return the rows of the open window, and open none."""
        if self._first_step < 0:
            return []
        head = (self._end_wall_ns, self._first_step, self._last_step)
        present = np.flatnonzero(self._sums[0])
        sums = self._sums[:, present].T.tolist()
        rows = [
            (self._start_wall_ns, rank, *head, *of_rank)
            for rank, of_rank in zip(present.tolist(), sums, strict=True)
        ]
        steps = self._sums[0]
        self.mean_self_ns = np.where(steps > 0, self._sums[1] // np.maximum(steps, 1), -1)
        self._sums[:] = 0
        self._first_step = -1
        return rows
