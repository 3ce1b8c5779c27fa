"""The section of the HTML report on the expected step: two bars, a table, a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paceline_service.analysis.costs.words import duration_of
from paceline_service.export.expected_words import (
    LEAST_SHARE,
    PARTS,
    calibration_sentences,
    expected_sentence,
    signed,
)
from paceline_service.export.html.document import bullets, section
from paceline_service.export.html.markup import Markup, h, join, px
from paceline_service.export.units import format_ratio

Json = Mapping[str, Any]
_MADE_OF = (
    ("compute_s", "work", "compute"), ("communication_s", "comm", "transfers"),
    ("barrier_s", "wait", "waiting for each other"),
)  # fmt: skip
_WIDTH, _BAR, _GAP = 900.0, 22.0, 6.0
_LEFT, _RIGHT = 74.0, 90.0


def expected_section(report: Json) -> Markup | None:
    """Return the section, None where a report has no such figures."""
    told = expected_sentence(report)
    if not told:
        return None
    block: Json = report["expected"]
    parts = [h("p", told)]
    if block["expected_step_s"]:
        rows = _rows(block)
        parts += [_bars(block, rows), _table(block, rows)]
    if fitted := calibration_sentences(report):
        parts.append(bullets(fitted))
    return section("The step of healthy ranks", join(parts))


def _rows(block: Json) -> list[tuple[str, str, float]]:
    """Return class, words and seconds of what the step is made of, then of what it loses."""
    made = [(style, words, block[key]) for key, style, words in _MADE_OF]
    lost = [
        ("unknown" if part == "unexplained" else "lost", words, block["gap_parts_s"][part] or 0.0)
        for part, words in PARTS.items()
    ]
    least = LEAST_SHARE * block["expected_step_s"]
    return made + [row for row in lost if abs(row[2]) >= least]


def _bars(block: Json, rows: list[tuple[str, str, float]]) -> Markup:
    whole = max(block["observed_step_s"], block["expected_step_s"])
    scale = (_WIDTH - _LEFT - _RIGHT) / whole
    drawn: list[Markup] = []
    bars = (
        ("expected", rows[: len(_MADE_OF)], block["expected_step_s"]),
        ("observed", rows, block["observed_step_s"]),
    )
    for number, (name, shown, seconds) in enumerate(bars):
        top, left = number * (_BAR + _GAP), _LEFT
        middle = px(top + _BAR / 2 + 4)
        drawn.append(h("text", name, x=0, y=middle))
        for style, words, part in shown:
            width = max(part, 0.0) * scale
            title = h("title", f"{words}: {duration_of(max(part, 0.0))}")
            drawn.append(
                h("rect", title, x=px(left), y=px(top), width=px(width), height=px(_BAR),
                  class_=style)
            )  # fmt: skip
            left += width
        drawn.append(h("text", duration_of(seconds), x=px(left + 6), y=middle))
    height = px(2 * _BAR + _GAP)
    return h(
        "svg", *drawn, class_="chart", viewBox=f"0 0 {px(_WIDTH)} {height}", role="img",
        aria_label="Expected and observed step; the table tells the same",
    )  # fmt: skip


def _table(block: Json, rows: list[tuple[str, str, float]]) -> Markup:
    body = [
        h(
            "tr",
            h("td", ("lost to " if style == "lost" else "") + words),
            h("td", signed(part), class_="number"),
            h("td", format_ratio(abs(part) / block["expected_step_s"]), class_="number"),
        )
        for style, words, part in rows
    ]
    heads = ("part", "per step", "of the expected step")
    head = [h("th", one, scope="col", class_="number" if one != "part" else None) for one in heads]
    return h("table", h("thead", h("tr", *head)), h("tbody", *body))
