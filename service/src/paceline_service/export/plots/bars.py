"""What a whole is made of: a bar per case, its parts one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paceline.dataclass import dataclass
from paceline_service.export.plots.axes import axis, say
from paceline_service.export.plots.drawing import (
    GRID,
    WIDTH,
    Area,
    Drawing,
    Label,
    Part,
    Stroke,
    box,
    legend,
)

LEFT, RIGHT = 210, 24
BAR, GAP = 20, 9
_KINDS = ("backward", "comm", "copy", "optimizer", "checkpoint", "input", "host", "forward")


@dataclass(frozen=True, slots=True)
class Bar:
    """One case: its parts by name, in the order in which they are drawn."""

    name: str
    parts: Mapping[str, float]


def bars(
    title: str, x_label: str, rows: Sequence[Bar], kinds: Mapping[str, str] | None = None
) -> Drawing:
    """Return stacked bars.

    Args:
        title: above them.
        x_label: with its unit.
        rows: the cases; parts that are negative are left out.
        kinds: a colour of the palette for names of parts; the others get theirs in turn.
    """
    names = list(dict.fromkeys(name for row in rows for name in row.parts))
    colours = {name: _KINDS[place % len(_KINDS)] for place, name in enumerate(names)}
    colours.update(kinds or {})
    right = WIDTH - RIGHT
    keys, taken_px = legend([(name, colours[name]) for name in names], LEFT, 28, right)
    top = 28 + taken_px + 8
    bottom = top + len(rows) * (BAR + GAP)
    totals = [sum(max(value, 0.0) for value in row.parts.values()) for row in rows]
    xs = axis([0.0, *totals], LEFT, right - 60, log=False, zero=True)
    parts: list[Part] = [Label((0, 14), title), *keys]
    for tick in xs.ticks:
        parts.append(Stroke(((xs.px(tick), top - 4), (xs.px(tick), bottom)), GRID))
        parts.append(Label((xs.px(tick), bottom + 17), say(tick), "middle", "ink-3"))
    for place, (row, total) in enumerate(zip(rows, totals, strict=True)):
        y = top + place * (BAR + GAP)
        parts.append(Label((LEFT - 10, y + 14), row.name[:32], "end"))
        at = 0.0
        for name, value in row.parts.items():
            if value > 0:
                ends = box(xs.px(at), y, xs.px(at + value), y + BAR)
                parts.append(Area(ends, colours[name], says=f"{name}: {say(_short(value))}"))
                at += value
        parts.append(Label((xs.px(total) + 6, y + 14), say(_short(total)), "start", "ink-2"))
    parts.append(Label((right, bottom + 36), x_label, "end", "ink-2"))
    told = f"{title}: " + "; ".join(
        f"{row.name} {say(_short(total))}" for row, total in zip(rows, totals, strict=True)
    )
    return Drawing(height_px=bottom + 44, parts=tuple(parts), told=f"{told} ({x_label})")


def _short(value: float) -> float:
    return float(f"{value:.3g}")
