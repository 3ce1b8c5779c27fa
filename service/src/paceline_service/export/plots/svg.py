"""A drawing as SVG.

Colours are those of the document around it, by name; each name brings the colour of the light
palette, so that the SVG is whole as a file of its own too. Attributes rather than styles: the
policy of the documents allows no style but theirs.
"""

from __future__ import annotations

from collections.abc import Iterable

from paceline_service.export.html.markup import Markup, h, px
from paceline_service.export.html.style import LIGHT
from paceline_service.export.plots.drawing import Area, Dot, Drawing, Label, Part, Point, Stroke

_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"


def svg(drawing: Drawing) -> Markup:
    """Return a drawing as an ``svg`` element that is a file of its own as well."""
    width, height = px(drawing.width_px), px(drawing.height_px)
    back = h("rect", width=width, height=height, fill=_colour("surface"))
    return h(
        "svg", back, *(_part(part) for part in drawing.parts),
        xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {width} {height}", role="img",
        aria_label=drawing.told, class_="chart", font_family=_FONT, font_size="12",
    )  # fmt: skip


def _colour(name: str) -> str:
    return f"var(--{name},{LIGHT[name]})"


def _part(part: Part) -> Markup:
    if isinstance(part, Stroke):
        dash = " ".join(px(length) for length in part.pen.dash) or None
        return h(
            "path", d=Markup("M" + _way(part.points)), fill="none",
            stroke=_colour(part.pen.colour), stroke_width=px(part.pen.width_px),
            stroke_dasharray=dash, stroke_linejoin="round",
        )  # fmt: skip
    if isinstance(part, Area):
        opacity = part.opacity if part.opacity < 1 else None
        return h(
            "path", h("title", part.says) if part.says else None,
            d=Markup("M" + _way(part.points) + "z"), fill=_colour(part.colour),
            fill_opacity=opacity,
        )  # fmt: skip
    if isinstance(part, Dot):
        x, y = part.at
        title = h("title", part.says) if part.says else None
        return h("circle", title, cx=px(x), cy=px(y), r=3, fill=_colour(part.colour))
    return _words(part)


def _words(label: Label) -> Markup:
    class_ = {"ink-3": "quiet", "bad": "bad"}.get(label.colour)
    end = label.anchor if label.anchor != "start" else None
    return h(
        "text", label.text, x=px(label.at[0]), y=px(label.at[1]), fill=_colour(label.colour),
        text_anchor=end, class_=" ".join(word for word in (class_, end) if word) or None,
    )  # fmt: skip


def _way(points: Iterable[Point]) -> str:
    return "L".join(f"{px(x)} {px(y)}" for x, y in points)
