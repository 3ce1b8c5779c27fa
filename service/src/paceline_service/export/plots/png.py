"""The same drawings as one PNG: with Pillow, which only this needs (extra ``plots``)."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paceline.errors import ConfigError
from paceline_service.export.html.style import LIGHT
from paceline_service.export.plots.drawing import Area, Dot, Drawing, Label, Point, Stroke

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont

SCALE = 2
"""Pixels of the picture for one of the drawing: sharp on today's screens and on paper."""
_MARGIN = 16
_SMOOTH = 2
"""Lines are drawn so many times larger and made smaller again: Pillow's have stairs."""
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}


def png(drawings: Sequence[Drawing]) -> bytes:
    """Return drawings, one below the other, as a PNG.

    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError as error:
        raise ConfigError(
            "a PNG needs Pillow, which is not installed: pip install 'paceline-service[plots]', "
            "or ask for --html, which needs nothing"
        ) from error
    width = max(drawing.width_px for drawing in drawings) + 2 * _MARGIN
    height = sum(drawing.height_px + _MARGIN for drawing in drawings) + _MARGIN
    size = (round(width * SCALE), round(height * SCALE))
    large = Image.new("RGB", (size[0] * _SMOOTH, size[1] * _SMOOTH), LIGHT["surface"])
    tops = list(_tops(drawings))
    brush = ImageDraw.Draw(large, "RGBA")
    for drawing, top in tops:
        _shapes(brush, drawing, top, SCALE * _SMOOTH)
    small = large.resize(size, Image.Resampling.BOX)
    font = ImageFont.load_default(12 * SCALE)
    brush = ImageDraw.Draw(small)
    for drawing, top in tops:
        _words(brush, drawing, top, font)
    out = io.BytesIO()
    # A plot has few colours and their mixtures: a palette is a third of the size.
    few = small.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(out, "PNG", optimize=True)
    return out.getvalue()


def _tops(drawings: Sequence[Drawing]) -> Iterator[tuple[Drawing, float]]:
    top = float(_MARGIN)
    for drawing in drawings:
        yield drawing, top
        top += drawing.height_px + _MARGIN


def _shapes(brush: ImageDraw.ImageDraw, drawing: Drawing, top: float, scale: float) -> None:
    def placed(points: Sequence[Point]) -> list[Point]:
        return [((x + _MARGIN) * scale, (y + top) * scale) for x, y in points]

    for part in drawing.parts:
        if isinstance(part, Area):
            brush.polygon(placed(part.points), fill=_rgba(part.colour, part.opacity))
        elif isinstance(part, Dot):
            brush.circle(placed([part.at])[0], 3 * scale, fill=LIGHT[part.colour])
        elif isinstance(part, Stroke):
            colour, width = LIGHT[part.pen.colour], round(part.pen.width_px * scale)
            for run in _dashed(part.points, part.pen.dash):
                brush.line(placed(run), fill=colour, width=width, joint="curve")


def _words(
    brush: ImageDraw.ImageDraw,
    drawing: Drawing,
    top: float,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    for part in drawing.parts:
        if isinstance(part, Label):
            at = ((part.at[0] + _MARGIN) * SCALE, (part.at[1] + top) * SCALE)
            brush.text(
                at, part.text, fill=LIGHT[part.colour], font=font, anchor=_ANCHORS[part.anchor]
            )


def _rgba(colour: str, opacity: float) -> tuple[int, int, int, int]:
    told = LIGHT[colour].lstrip("#")
    told = "".join(2 * c for c in told) if len(told) == 3 else told
    red, green, blue = (int(told[place : place + 2], 16) for place in (0, 2, 4))
    return red, green, blue, round(opacity * 255)


def _dashed(points: tuple[Point, ...], dash: tuple[float, ...]) -> Iterator[list[Point]]:
    """Give the parts of a line that are drawn, as SVG's ``stroke-dasharray`` has them."""
    if not dash:
        yield list(points)
        return
    place, left, run = 0, dash[0], [points[0]]
    for begin, end in itertools.pairwise(points):
        length = ((end[0] - begin[0]) ** 2 + (end[1] - begin[1]) ** 2) ** 0.5
        gone = 0.0
        while length - gone > left:
            gone += left
            share = gone / length
            at = (begin[0] + share * (end[0] - begin[0]), begin[1] + share * (end[1] - begin[1]))
            if place % 2 == 0:
                yield [*run, at]
            place += 1
            left, run = dash[place % len(dash)], [at]
        left -= length - gone
        run.append(end)
    if place % 2 == 0:
        yield run
