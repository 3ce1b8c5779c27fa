"""Plots and what they mean as one HTML file, of the same kind as a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from paceline.dataclass import dataclass
from paceline_service.export.html.document import bullets, document, footer, section
from paceline_service.export.html.markup import Markup, h, join
from paceline_service.export.plots.drawing import Drawing
from paceline_service.export.plots.svg import svg


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading with plots, a table and sentences under it.

    Attributes:
        title: the heading.
        plots: drawings, or the SVG of some.
        heads: of the table's columns.
        rows: of the table; text, aligned right from the second column on.
        sentences: what it means.
    """

    title: str
    plots: Sequence[Drawing | Markup] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    sentences: Sequence[str] = field(default=())


def page(
    title: str, sections: Sequence[Section], *, lead: str = "", asked: str = "",
    made_wall_ns: int = 0,
) -> str:  # fmt: skip
    """Return a whole document: nothing loaded from elsewhere, nothing run.

    Args:
        title: of the document, and its heading.
        sections: in their order.
        lead: what the reader should take away, under the heading.
        asked: the command that makes the file again.
        made_wall_ns: when it was made.
    """
    top = h("header", h("h1", title), h("p", lead) if lead else None, class_="card tone-note")
    parts = [top, *(_section(one) for one in sections), footer(made_wall_ns, asked)]
    return document(title, parts)


def _section(one: Section) -> Markup | None:
    inner = [svg(plot) if isinstance(plot, Drawing) else plot for plot in one.plots]
    if one.rows:
        inner.append(_table(one))
    if one.sentences:
        inner.append(bullets(one.sentences))
    return section(one.title, join(inner), long=len(one.rows) > 24)


def _table(one: Section) -> Markup:
    heads = [
        h("th", head, class_="number" if place else None) for place, head in enumerate(one.heads)
    ]
    rows = [
        h("tr", *(h("td", cell, class_="number" if place else None)
                  for place, cell in enumerate(row)))
        for row in one.rows
    ]  # fmt: skip
    return h("table", h("thead", h("tr", *heads)), h("tbody", *rows))
