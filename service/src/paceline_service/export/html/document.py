"""What every HTML file of Paceline is made of: a head with its policy, sections, lists."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from paceline_service.export.html.markup import Markup, h
from paceline_service.export.html.style import POLICY, STYLE
from paceline_service.export.html.tables import utc

MOST_LINES = 12
"""Of a list; the JSON has all."""


def document(title: str, parts: Sequence[Markup | None]) -> str:
    """Return a whole document: nothing loaded from elsewhere, nothing run."""
    head = h(
        "head",
        h("meta", charset="utf-8"),
        Markup(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'),
        h("meta", name_="referrer", content="no-referrer"),
        h("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        h("title", title),
        h("style", Markup(STYLE)),
    )
    body = h("body", h("main", *(part for part in parts if part is not None)))
    return f'<!doctype html>\n<html lang="en">{head}\n{body}</html>\n'


def section(title: str, content: Markup | None, *, long: bool = False) -> Markup | None:
    """Return a section, None where there is nothing in it."""
    if content is None:
        return None
    inner = h("div", content, class_="scroll")
    return h("section", h("h2", title), inner, class_="long" if long else None)


def bullets(items: Sequence[str]) -> Markup:
    """Return a list of sentences, of bounded length."""
    shown = [h("li", _sentence(item)) for item in items[:MOST_LINES]]
    if len(items) > MOST_LINES:
        shown.append(h("li", f"{len(items) - MOST_LINES} more; the JSON report has all."))
    return h("ul", *shown) if shown else Markup("")


def facts(items: Sequence[tuple[str, str, str]]) -> Markup:
    """Return figures with a name above and a word below each."""
    boxes = (h("div", h("dt", k), h("dd", v, h("small", about))) for k, v, about in items)
    return h("section", h("dl", *boxes), class_="facts", aria_label="Figures")


def footer(made_wall_ns: int, asked: str, url: str = "") -> Markup:
    """Return when and by what the file was made, and where the live page is."""
    parts = ["Made by Paceline"]
    if made_wall_ns > 0:
        parts.append(f" on {utc(made_wall_ns)}")
    said: list[Markup] = [h("span", "".join(parts) + ".")]
    if asked:
        said += [Markup(" "), h("span", f"Made again by: {asked}")]
    if url and urlsplit(url).scheme in ("http", "https"):
        link = h("a", url, href=url, rel="noreferrer noopener")
        said += [h("br"), h("span", "Live: "), link]
    return h("footer", *said)


def _sentence(item: str) -> str:
    return item[:1].upper() + item[1:] if item.partition(" ")[0].isalpha() else item
