"""One lane of the sawtooth: full while the ranks compute, half in communication, low in waits.

A tooth is one step, or the mean of several. Fast ranks drop to the floor together at the end of
each tooth, the slow one never does; heights tell it without colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from paceline_service.export.step_table import Floats, StepTable, mean, teeth
from paceline_service.export.telling import Lane

COMPUTE, COMM, WAIT = "#5d8fb8", "#2f9c8e", "#7a7f87"
"""Readable on dark and on light; rich takes the nearest where there are fewer colours."""
SLOW_COMPUTE = "#d9622b"
TOOTH_CELLS = 11
FEWEST_TOOTH_CELLS, MOST_TOOTH_CELLS = 6, 24
TOOTH_S = 0.5
"""A tooth is of at least so much time, so that the eye can follow."""
_ROUND = (1, 2, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """What lanes are drawn with."""

    compute: str
    comm: str
    wait: str
    partial: str
    """Parts of a cell that the end of computing fills, ascending; empty: whole cells only."""
    sparks: str
    missing: str
    bar: str


UNICODE = Glyphs(
    compute="█", comm="▄", wait="▁", partial="▏▎▍▌▋▊▉", sparks="▁▂▃▄▅▆▇█", missing="·", bar="▌"
)
ASCII = Glyphs(compute="#", comm="=", wait="_", partial="", sparks="_.-=+*%#", missing=".", bar="|")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tooth:
    """The means of some steps: the whole, and per rank (R,), ns."""

    duration_ns: float
    self_ns: Floats
    wait_ns: Floats
    comm_ns: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Sawtooth:
    """The newest teeth, and the steps that they are of."""

    teeth: tuple[Tooth, ...]
    cells: int
    """Of a tooth, with the gap behind it."""
    every: int
    """Steps of a tooth."""
    table: StepTable

    @property
    def width(self) -> int:
        """Cells of a lane."""
        return len(self.teeth) * self.cells


def sawtooth(table: StepTable, width: int) -> Sawtooth:
    """Return the newest steps as teeth that fill ``width`` cells."""
    count = max(width // TOOTH_CELLS, 1)
    known = table.duration_ns[table.duration_ns > 0]
    step_s = float(np.median(known)) / 1e9 if len(known) else TOOTH_S
    every = _round(min(TOOTH_S / max(step_s, 1e-6), max(len(table) / count, 1)))
    slices = list(teeth(table, every))
    if len(slices) > count and _size(slices[-1]) < (every + 1) // 2:
        slices.pop()  # a mean of too few
    slices = slices[-count:]
    cells = width // max(len(slices), 1)
    cells = min(max(cells, FEWEST_TOOTH_CELLS), MOST_TOOTH_CELLS)
    made = [_tooth(table.take(one)) for one in slices]
    shown = table.take(slice(slices[0].start, slices[-1].stop)) if slices else table
    return Sawtooth(teeth=tuple(made), cells=cells, every=every, table=shown)


def draw_lane(drawn: Sawtooth, lane: Lane, glyphs: Glyphs) -> Text:
    """Return the lane as text of ``drawn.width`` cells."""
    places = drawn.table.places(lane.ranks)
    style = SLOW_COMPUTE if lane.named else COMPUTE
    text = Text(no_wrap=True, end="")
    for tooth in drawn.teeth:
        _draw_tooth(text, tooth, places, drawn.cells, glyphs, style)
    return text


def _draw_tooth(
    text: Text, tooth: Tooth, places: Sequence[int], cells: int, glyphs: Glyphs, style: str
) -> None:
    inside = cells - 1  # a gap stands behind each tooth: the barrier
    self_ns = float(mean(tooth.self_ns[places], axis=0))
    if not self_ns >= 0:
        text.append(glyphs.missing * inside + " ", WAIT)
        return
    wait_ns = float(np.nan_to_num(mean(tooth.wait_ns[places], axis=0)))
    comm_ns = float(np.nan_to_num(mean(tooth.comm_ns[places], axis=0)))
    span_ns = max(tooth.duration_ns, self_ns + wait_ns + comm_ns, 1.0)
    scale = inside / span_ns
    after = round((self_ns + comm_ns) * scale)
    to = max(after - round(comm_ns * scale), 0)
    partial = ""
    if glyphs.partial and after == to and wait_ns > 0:
        whole, eighth = divmod(round((self_ns + comm_ns) * scale * 8), 8)
        to = after = whole
        partial = glyphs.partial[eighth - 1] if eighth and whole < inside else ""
    text.append(glyphs.compute * to + partial, style)
    text.append(glyphs.comm * (after - to), COMM)
    text.append(glyphs.wait * (inside - after - len(partial)) + " ", WAIT)


def _tooth(table: StepTable) -> Tooth:
    return Tooth(
        duration_ns=float(np.nan_to_num(mean(table.duration_ns, axis=0))),
        self_ns=mean(table.self_ns, axis=0),
        wait_ns=mean(table.wait_ns, axis=0),
        comm_ns=mean(table.comm_ns, axis=0),
    )


def _size(one: slice) -> int:
    return int(one.stop) - int(one.start)


def _round(value: float) -> int:
    """Return the nearest of 1, 2, 5, 10, 20, 50, ...: teeth do not change with every step."""
    power = 1
    while True:
        for digit in _ROUND:
            if digit * power * 1.5 >= value:
                return digit * power
        power *= 10
