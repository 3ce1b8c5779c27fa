"""The rows of ``paceline top``: name, lane, figures, in columns that fit the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from rich.text import Text

from paceline_service.export import words
from paceline_service.export.telling import Lane
from paceline_service.export.units import format_ns, format_ratio
from paceline_service.top.lanes import SLOW_COMPUTE, Glyphs, Sawtooth, draw_lane

MOST_NAME_CELLS, MOST_NODE_CELLS = 20, 16
FEWEST_LANE_CELLS = 8
_QUIET = "dim"


class Rows:
    """Lays out some lanes.

    Args:
        lanes: that are on the screen.
        width: cells of a line.
        pending: of a job that stands still, for how long each rank is in a collective, s; None
            is a rank that is in none.
        glyphs: to draw with.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        width: int,
        pending: Mapping[int, float | None],
        glyphs: Glyphs,
    ) -> None:
        self._width = width
        self._pending = pending
        self._glyphs = glyphs
        names = [len(words.clean(lane.name)) for lane in lanes]
        self._name = min(max(names, default=6), MOST_NAME_CELLS)
        self._role = max((len(lane.role) for lane in lanes), default=0)
        self._node = self._node_cells(lanes)
        self._columns = self._figure_columns()
        left = sum(cells + 1 for cells in (self._name, self._role, self._node) if cells)
        figures = sum(cells + 1 for _, cells in self._columns)
        self._left = left
        self.lane_cells = max(width - left - figures, FEWEST_LANE_CELLS)

    def heading(self, drawn: Sawtooth, what: str) -> Text:
        """Return the line above the rows; ``what`` says which lanes they are."""
        steps = drawn.table.steps
        told = f"steps {steps[0]:,}-{steps[-1]:,}"
        if drawn.every > 1:
            told += f", {drawn.every} a tooth"
        if len(told) + len(what) + 3 <= self.lane_cells:
            told += f"   {what}"
        line = " " * self._left + told[: self.lane_cells].ljust(self.lane_cells)
        for head, cells in self._columns:
            line += " " + head.rjust(cells)
        return Text(line[: self._width], style=_QUIET, no_wrap=True)

    def row(self, drawn: Sawtooth, lane: Lane) -> Text:
        """Return one lane as a line."""
        style = f"bold {SLOW_COMPUTE}" if lane.named else ""
        text = Text(no_wrap=True)
        text.append(_fit(words.clean(lane.name), self._name) + " ", style)
        if self._role:
            text.append(lane.role.ljust(self._role) + " ", style or _QUIET)
        if self._node:
            text.append(_fit(words.clean(lane.node), self._node) + " ", _QUIET)
        text.append_text(draw_lane(drawn, lane, self._glyphs))
        text.append(" " * (self.lane_cells - drawn.width))
        figures = self._figures(drawn, lane)
        for head, column in self._columns:
            text.append(" " + figures[head].rjust(column), style)
        text.truncate(self._width, overflow="ellipsis")
        return text

    def _node_cells(self, lanes: Sequence[Lane]) -> int:
        """Return the width of the column of nodes: there where it fits and tells something."""
        if self._width < 90 or len({lane.node for lane in lanes}) < 2:
            return 0
        if lanes[0].name == lanes[0].node:
            return 0
        return min(max(len(words.clean(lane.node)) for lane in lanes), MOST_NODE_CELLS)

    def _figure_columns(self) -> tuple[tuple[str, int], ...]:
        """Return heads and widths of the figures at the right: fewer where it is narrow."""
        last = ("stands", 8) if self._pending else ("last in", 8)
        if self._width >= 76:
            return (("work", 9), ("waits", 6), last)
        if self._pending:
            return (last,)
        return (("work", 9), ("waits", 6)) if self._width >= 56 else (("waits", 6),)

    def _figures(self, drawn: Sawtooth, lane: Lane) -> dict[str, str]:
        table = drawn.table
        places = table.places(lane.ranks)
        self_ns, wait_ns, comm_ns = (
            values[:, places] for values in (table.self_ns, table.wait_ns, table.comm_ns)
        )
        members = frozenset(lane.ranks)
        count = int((~np.isnan(self_ns)).sum())
        stands = _stands([self._pending[rank] for rank in lane.ranks if rank in self._pending])
        if not count:
            return {"work": "no data", "waits": "", "last in": "", "stands": stands}
        own_ns = float(np.nansum(self_ns))
        waited_ns, all_ns = float(np.nansum(wait_ns)), own_ns + float(np.nansum(comm_ns))
        last = sum(rank in members for rank in table.slowest_rank)
        return {
            "work": format_ns(round(own_ns / count)),
            "waits": format_ratio(waited_ns / max(all_ns + waited_ns, 1.0)),
            "last in": f"{last}/{len(table)}",
            "stands": stands,
        }


def span(seconds: float) -> str:
    """Return how long something lasts: ``42 s``, ``5 min``, ``3 h``."""
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"


def _stands(ages_s: Sequence[float | None]) -> str:
    """Return for how long the ranks of a lane are in a collective, or that one is not in it."""
    absent = sum(age is None for age in ages_s)
    if absent:
        return "not in" if len(ages_s) == 1 else f"{absent} not in"
    return span(max((age for age in ages_s if age is not None), default=0)) if ages_s else ""


def _fit(text: str, cells: int) -> str:
    return (text if len(text) <= cells else text[: cells - 1] + "~").ljust(cells)
