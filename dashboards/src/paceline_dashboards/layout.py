"""Places panels: sections with a heading, lines of panels side by side, 24 columns wide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import attr
from grafanalib.core import GridPos, Panel, RowPanel

COLUMNS = 24


@dataclass(frozen=True, slots=True)
class Line:
    """Panels side by side, with their widths in columns."""

    height: int
    panels: tuple[tuple[Panel, int], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what is below it."""

    title: str
    lines: tuple[Line, ...]


def line(height: int, *panels: Panel, widths: tuple[int, ...] = ()) -> Line:
    """Return panels side by side, equally wide unless ``widths`` says otherwise."""
    chosen = widths or (COLUMNS // len(panels),) * len(panels)
    if sum(chosen) > COLUMNS or len(chosen) != len(panels):
        raise ValueError(f"{len(panels)} panels of {chosen} columns do not fit into {COLUMNS}")
    return Line(height, tuple(zip(panels, chosen, strict=True)))


def section(title: str, *lines: Line) -> Section:
    """Return a heading and the lines below it."""
    return Section(title, lines)


def arranged(sections: Iterable[Section]) -> list[Panel]:
    """Return all panels with their places, from top to bottom."""
    placed: list[Panel] = []
    top = 0
    for part in sections:
        placed.append(RowPanel(title=part.title, gridPos=GridPos(h=1, w=COLUMNS, x=0, y=top)))
        top += 1
        for one in part.lines:
            left = 0
            for panel, width in one.panels:
                place = GridPos(h=one.height, w=width, x=left, y=top)
                placed.append(attr.evolve(panel, gridPos=place))
                left += width
            top += one.height
    return placed
