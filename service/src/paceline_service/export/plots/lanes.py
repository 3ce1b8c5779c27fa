"""Who does what when: a lane per rank, work at full height, transfers at half, waiting as a floor.

So a straggler is the lane without floors, as in the sawtooth of a report.
"""

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

LEFT, RIGHT = 150, 24
LANE, GAP = 24, 8
MOST_LANES = 32
MOST_SPANS = 4000
HEIGHTS = {"wait": 3, "comm": 12}
"""In pixels; what is not here has the whole lane."""


@dataclass(frozen=True, slots=True)
class Span:
    """Something that a lane does from ``start`` to ``end``; ``kind`` is a colour of the palette.

    Kinds: host, input, forward, backward, optimizer, copy, checkpoint, work, comm, wait, bad.
    """

    start: float
    end: float
    kind: str
    says: str = ""


@dataclass(frozen=True, slots=True)
class Lane:
    """A rank, a stage, a link."""

    name: str
    spans: Sequence[Span]
    named: bool = False


def lanes(
    title: str,
    x_label: str,
    rows: Sequence[Lane],
    kinds: Mapping[str, str],
    barriers: Sequence[float] = (),
) -> Drawing:
    """Return a timeline.

    Args:
        title: above it.
        x_label: with its unit.
        rows: the lanes; of more than 32 the first are drawn.
        kinds: what each kind of span means, for the legend.
        barriers: times at which a line goes through all lanes.
    """
    right = WIDTH - RIGHT
    keys, taken_px = legend([(name, kind) for kind, name in kinds.items()], LEFT, 28, right)
    top = 28 + taken_px + 8
    drawn = rows[:MOST_LANES]
    bottom = top + len(drawn) * (LANE + GAP)
    ends = [span.end for row in drawn for span in row.spans]
    xs = axis([0.0, max(ends, default=1.0)], LEFT, right, log=False, zero=False)
    parts: list[Part] = [Label((0, 14), title), *keys]
    for at in barriers:
        parts.append(Stroke(((xs.px(at), top - 4), (xs.px(at), bottom)), GRID))
    for place, row in enumerate(drawn):
        floor = top + place * (LANE + GAP) + LANE
        parts.append(Label((0, floor - 8), row.name[:24], "start", "bad" if row.named else "ink"))
        for span in row.spans[: MOST_SPANS // len(drawn)]:
            height = HEIGHTS.get(span.kind, LANE)
            # A hair of space tells two spans of one kind from one long span.
            left, end = xs.px(span.start), xs.px(span.end)
            end = end - 0.8 if end - left > 3 else end
            parts.append(Area(box(left, floor - height, end, floor), span.kind, says=span.says))
    for tick in xs.ticks:
        x = xs.px(tick)
        parts.append(Stroke(((x, bottom), (x, bottom + 5)), GRID))
        parts.append(Label((x, bottom + 19), say(tick), "middle", "ink-3"))
    parts.append(Label((right, bottom + 38), x_label, "end", "ink-2"))
    if len(rows) > len(drawn):
        told = f"{len(rows) - len(drawn):,} more are not drawn"
        parts.append(Label((0, bottom + 38), told, "start", "ink-3"))
    told = f"{title}: {len(drawn)} lanes from 0 to {say(xs.high)} {x_label}"
    return Drawing(height_px=bottom + 46, parts=tuple(parts), told=told)
