"""What a plot is made of, before it is SVG or PNG: strokes, areas, dots and words at pixels."""

from __future__ import annotations

from typing import Literal

from paceline.dataclass import dataclass

Point = tuple[float, float]
Anchor = Literal["start", "middle", "end"]
WIDTH = 1040
"""Of every drawing, as of the charts of a report."""
CHARACTER_PX = 6.6
"""A character at 12 pixels takes this at most on average; words are never measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pen:
    """How a line looks: ``colour`` is a name of the palette of export/html/style.py."""

    colour: str
    width_px: float = 1.0
    dash: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Stroke:
    """A line through points."""

    points: tuple[Point, ...]
    pen: Pen


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon; ``says`` is shown where a pointer rests on it."""

    points: tuple[Point, ...]
    colour: str
    opacity: float = 1.0
    says: str = ""


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured or computed point; ``says`` is shown where a pointer rests on it."""

    at: Point
    colour: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """Words at a point; ``quiet`` ones belong to axes."""

    at: Point
    text: str
    anchor: Anchor = "start"
    colour: str = "ink"


Part = Stroke | Area | Dot | Label


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A whole plot; ``told`` says in a sentence what is drawn, for those who do not see it."""

    width_px: float = WIDTH
    height_px: float
    parts: tuple[Part, ...]
    told: str


GRID = Pen(colour="line")
SERIES = (
    Pen(colour="backward", width_px=2),
    Pen(colour="bad", width_px=2, dash=(8, 3)),
    Pen(colour="good", width_px=2, dash=(2, 3)),
    Pen(colour="note", width_px=2, dash=(10, 3, 2, 3)),
    Pen(colour="copy", width_px=2, dash=(5, 2)),
    Pen(colour="checkpoint", width_px=2, dash=(1, 2)),
    Pen(colour="optimizer", width_px=2, dash=(12, 4)),
    Pen(colour="ink-3", width_px=2, dash=(4, 4)),
)
"""Of the lines of one chart, in turn: dashes differ too, nothing is told by colour alone."""


def box(left: float, top: float, right: float, bottom: float) -> tuple[Point, ...]:
    """Return the corners of a rectangle."""
    return ((left, top), (right, top), (right, bottom), (left, bottom))


def legend(
    names: list[tuple[str, Pen | str]], left: float, top: float, right: float
) -> tuple[list[Part], float]:
    """Return a legend that wraps, a pen drawn as a line and a colour as a box, and its height."""
    parts: list[Part] = []
    x, y = left, top
    for name, look in names:
        width = 34 + len(name) * CHARACTER_PX
        if x > left and x + width > right:
            x, y = left, y + 18
        if isinstance(look, Pen):
            parts.append(Stroke(((x, y + 6), (x + 22, y + 6)), look))
        else:
            parts.append(Area(box(x + 4, y, x + 18, y + 12), look))
        parts.append(Label((x + 28, y + 10), name))
        x += width + 10
    return parts, y - top + 18
