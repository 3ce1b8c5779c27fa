"""What is kept of steps beside their summaries: lanes and windows, from the engine's thread.

They are for drawing. Nothing depends on them, so they are bounded everywhere and given up first.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.jobs.lanes import LaneRow, Lanes, ToWall
from paceline_service.jobs.windows import WindowRow, Windows


@dataclass(slots=True)
class Details:
    """Rows that became complete; ``fresh`` ones begin anew and replace what was stored of them."""

    lanes: list[LaneRow] = field(default_factory=list)
    windows: list[WindowRow] = field(default_factory=list)
    first_step: int = -1
    """The first step of an analysis that began anew: what is stored from it on is replaced."""

    def add(self, later: Details) -> None:
        """Append what came later; who began anew replaces what is waiting, too."""
        if later.first_step >= 0:
            self.lanes = [row for row in self.lanes if row[3] < later.first_step]
            self.windows = [row for row in self.windows if row[4] < later.first_step]
            if self.first_step < 0 or later.first_step < self.first_step:
                self.first_step = later.first_step
        self.lanes += later.lanes
        self.windows += later.windows

    def __bool__(self) -> bool:
        return bool(self.lanes or self.windows)


class DetailKeeper:
    """Makes the details of one attempt."""

    def __init__(self, world_size: int, first_seen_wall_ns: int) -> None:
        self.lanes = Lanes(world_size)
        self._windows = Windows(world_size, first_seen_wall_ns)
        self._ready = Details()
        self._begun = False

    def take(self, row: StepRow, start_wall_ns: int, to_wall: ToWall) -> None:
        """Take a step in its order."""
        if row.detail is None:
            return
        if not self._begun:
            self._begun = True
            self._ready.first_step = row.step
        if closed := self._windows.add(row, row.detail, start_wall_ns):
            self._ready.windows += closed
            self.lanes.compare(self._windows.mean_self_ns)
        self._ready.lanes += self.lanes.of_step(row, row.detail, to_wall)

    def begin_anew(self) -> None:
        """The process before told more than this one knows: its rows are replaced."""
        self._begun = False

    def finish(self) -> None:
        """No more steps will come."""
        self._ready.windows += self._windows.close()

    def collect(self) -> Details:
        """Return what became complete since the last call."""
        ready, self._ready = self._ready, Details()
        return ready
