"""Lines over an axis: one quantity against another, for several cases."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.dataclass import dataclass
from paceline_service.export.plots.axes import Axis, axis, say
from paceline_service.export.plots.drawing import (
    CHARACTER_PX,
    GRID,
    SERIES,
    WIDTH,
    Area,
    Dot,
    Drawing,
    Label,
    Part,
    Pen,
    Stroke,
    legend,
)

HEIGHT = 340
LEFT, RIGHT, BOTTOM = 78, 24, 46
MOST_DOTS = 40
"""A line of so few points has each drawn, with its values under the pointer."""
MOST_POINTS = 1000
_AT = Pen(colour="bad", width_px=1.5, dash=(4, 3))


@dataclass(frozen=True, slots=True)
class Line:
    """One case: ``y`` over ``x``. What is not finite leaves a gap.

    Attributes:
        name: in the legend.
        x: ascending.
        y: as many as ``x``.
        low: with ``high``, a band around the line (an interval, or the least and the most).
        high: as many as ``x``.
        points_only: dots without a line between them: what was measured.
        dots: whether a line of few points has them drawn.
        pen: its place among the pens, so that what belongs together looks alike.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    points_only: bool = False
    dots: bool = True
    pen: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A place on the x axis that is named: a break-even, a choice."""

    x: float
    word: str


def plot(
    title: str,
    x_label: str,
    y_label: str,
    lines: Sequence[Line],
    log_x: bool = False,
    log_y: bool = False,
    marks: Sequence[Mark] = (),
) -> Drawing:
    """Return lines over an axis as a drawing.

    Args:
        title: above the plot.
        x_label: with its unit.
        y_label: with its unit.
        lines: the cases.
        log_x: equal factors are equally far apart.
        log_y: likewise.
        marks: places on the x axis that are named.

    Raises:
        ValueError: a line has not as many values in ``y`` as in ``x``.
    """
    for line in lines:
        for values in (line.y, line.low, line.high):
            if values is not None and len(values) != len(line.x):
                raise ValueError(f"{line.name}: {len(line.x)} x and {len(values)} values over it")
    right = WIDTH - RIGHT
    pens = [
        SERIES[(place if line.pen is None else line.pen) % len(SERIES)]
        for place, line in enumerate(lines)
    ]
    names: list[tuple[str, Pen | str]] = [
        (line.name, pen.colour if line.points_only else pen)
        for line, pen in zip(lines, pens, strict=True)
        if line.name
    ]
    keys, taken_px = legend(names, LEFT, 28, right) if names else ([], 0)
    top = 28 + taken_px + 22
    bottom = top + HEIGHT - BOTTOM - 72
    xs = axis((v for line in lines for v in line.x), LEFT, right, log=log_x, zero=False)
    ys = axis((v for line in lines for v in _all(line)), bottom, top, log=log_y, zero=not log_y)
    parts: list[Part] = [Label((0, 14), title), *keys, *_axes(xs, ys, x_label, y_label)]
    for line, pen in zip(lines, pens, strict=True):
        parts += _line(line, pen, xs, ys)
    for mark in marks:
        parts += _mark(mark, xs, ys)
    cases = "; ".join(_told(line, ys) for line in lines if line.name)
    told = f"{title}: {y_label} over {x_label}; {cases}"
    return Drawing(height_px=bottom + BOTTOM, parts=tuple(parts), told=told)


def _all(line: Line) -> list[float]:
    return [*line.y, *(line.low or ()), *(line.high or ())]


def _axes(xs: Axis, ys: Axis, x_label: str, y_label: str) -> list[Part]:
    bottom, top = ys.from_px, ys.to_px
    parts: list[Part] = []
    for tick in ys.ticks:
        y = ys.px(tick)
        parts.append(Stroke(((xs.from_px, y), (xs.to_px, y)), GRID))
        parts.append(Label((xs.from_px - 8, y + 4), say(tick), "end", "ink-3"))
    for tick in xs.ticks:
        x = xs.px(tick)
        parts.append(Stroke(((x, bottom), (x, bottom + 5)), GRID))
        parts.append(Label((x, bottom + 19), say(tick), "middle", "ink-3"))
    parts.append(Label((xs.from_px - 8, top - 10), y_label, "start", "ink-2"))
    parts.append(Label((xs.to_px, bottom + 38), x_label, "end", "ink-2"))
    return parts


def _line(line: Line, pen: Pen, xs: Axis, ys: Axis) -> list[Part]:
    parts: list[Part] = []
    if line.low is not None and line.high is not None:
        known = [
            (x, low, high)
            for x, low, high in zip(line.x, line.low, line.high, strict=True)
            if xs.shows(x) and ys.shows(low) and ys.shows(high)
        ]
        upper = [(xs.px(x), ys.px(high)) for x, _, high in known]
        lower = [(xs.px(x), ys.px(low)) for x, low, _ in reversed(known)]
        if len(known) > 1:
            parts.append(Area((*upper, *lower), pen.colour, 0.18))
    every = max(-(-len(line.x) // MOST_POINTS), 1)
    run: list[tuple[float, float]] = []
    dots: list[Part] = []
    for x, y in list(zip(line.x, line.y, strict=True))[::every]:
        if not (xs.shows(x) and ys.shows(y)):
            parts += _stroke(run, pen, line)
            run = []
            continue
        run.append((xs.px(x), ys.px(y)))
        dots.append(Dot(run[-1], pen.colour, f"{line.name} {say(x)}, {say(y)}".strip()))
    parts += _stroke(run, pen, line)
    few = line.dots and len(dots) <= MOST_DOTS
    return [*parts, *dots] if line.points_only or few else parts


def _stroke(run: list[tuple[float, float]], pen: Pen, line: Line) -> list[Part]:
    return [Stroke(tuple(run), pen)] if len(run) > 1 and not line.points_only else []


def _mark(mark: Mark, xs: Axis, ys: Axis) -> list[Part]:
    if not xs.shows(mark.x) or not xs.low <= mark.x <= xs.high:
        return []
    x = xs.px(mark.x)
    left = x + len(mark.word) * CHARACTER_PX > xs.to_px
    return [
        Stroke(((x, ys.to_px), (x, ys.from_px)), _AT),
        Label((x - 6 if left else x + 6, ys.to_px + 10), mark.word, "end" if left else "start",
              "bad"),
    ]  # fmt: skip


def _told(line: Line, ys: Axis) -> str:
    known = [y for y in line.y if ys.shows(y)]
    return f"{line.name} from {say(known[0])} to {say(known[-1])}" if known else f"{line.name}: -"
