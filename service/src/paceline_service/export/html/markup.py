"""Elements of HTML and SVG; whatever is not made here is escaped."""

from __future__ import annotations

from html import escape

from paceline_service.export.words import clean

VOID = frozenset({"meta", "br", "path", "rect", "line", "polyline"})
MOST_CHARACTERS = 1000
"""Of one text from outside: a note or a name must not make the file long."""


class Markup(str):
    """HTML that was made here and is not escaped again."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Return ``value`` as escaped text, without characters that steer, and not endless."""
    if isinstance(value, Markup):
        return value
    whole = str(value)
    plain = clean(whole[:MOST_CHARACTERS])
    return Markup(escape(plain + (" ..." if len(whole) > len(plain) else ""), quote=True))


def h(name: str, *children: object, **attributes: object) -> Markup:
    """Return an element; ``class_`` is ``class``, other ``_`` are ``-``, None is left out."""
    given = "".join(
        f' {_attribute(key)}="{text(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{given}>" if name in ("meta", "br") else f"<{name}{given}/>")
    inner = "".join(text(child) for child in children if child is not None)
    return Markup(f"<{name}{given}>{inner}</{name}>")


def path(drawn: str, class_: str) -> Markup:
    """Return a path of an SVG; ``drawn`` was made here, of numbers, and may be long."""
    return h("path", d=Markup(drawn), class_=class_)


def join(parts: list[Markup]) -> Markup:
    """Return several elements as one."""
    return Markup("".join(parts))


def px(value: float) -> str:
    """Return a coordinate, to a tenth."""
    told = f"{value:.1f}"
    return told[:-2] if told.endswith(".0") else told


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-")
