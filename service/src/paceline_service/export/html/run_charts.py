"""Two runs beside each other as SVG: their step times, the parts of a step, their ranks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline_service.export.compare_words import part_name, signed_ns, signed_ratio
from paceline_service.export.html.charts import LEFT, RIGHT, WIDTH
from paceline_service.export.html.markup import Markup, h, path, px
from paceline_service.export.step_table import Floats, StepTable
from paceline_service.export.units import format_ns, precise_ns
from paceline_service.export.words import Json, clean

MOST_POINTS = 240
MOST_RANKS = 64
_HEIGHT = 150
_FLAT = 0.5
"""An axis that shows only the upper half of its values begins above 0, and says so."""
_BAR = 150
_LEAST_FULL = 0.02
"""Of a step: what a bar of full length stands for at least."""


def step_time_lines(before: StepTable, after: StepTable) -> Markup:
    """Return the step times of both runs as lines, each over its whole length."""
    runs = [_bins(before), _bins(after)]
    high = max(float(np.quantile(run, 0.99)) for run in runs) * 1.03
    low = min(float(np.quantile(run, 0.01)) for run in runs) * 0.97
    low = 0.0 if low < high * _FLAT else low
    right, bottom = WIDTH - RIGHT, _HEIGHT - 20

    def points(run: Floats) -> str:
        places = np.linspace(LEFT, right, len(run))
        share = np.clip((run - low) / max(high - low, 1.0), 0.0, 1.0)
        heights = 8 + (1 - share) * (bottom - 8)
        return "L".join(f"{px(x)} {px(y)}" for x, y in zip(places, heights, strict=True))

    parts = [
        path(f"M{LEFT} {bottom}H{right}M{LEFT} 8H{right}", "grid"),
        path("M" + points(runs[0]), "line before"),
        path("M" + points(runs[1]), "line"),
        h("text", format_ns(round(high)), x=LEFT - 8, y=12, class_="quiet end"),
        h("text", format_ns(round(low)) if low else "0", x=LEFT - 8, y=bottom + 4,
          class_="quiet end"),
        h("text", "first step", x=LEFT, y=_HEIGHT - 5, class_="quiet"),
        h("text", "last step", x=right, y=_HEIGHT - 5, class_="quiet end"),
    ]  # fmt: skip
    told = f"Step times of both runs, from {format_ns(round(low))} to {format_ns(round(high))}"
    return h(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {_HEIGHT}", role="img", aria_label=told, class_="chart"
    )


def legend() -> Markup:
    """Return which line is which run."""
    keys = []
    for class_, name in (("line before", "before (dashed)"), ("line", "after")):
        swatch = h("svg", path("M0 6H26", class_), viewBox="0 0 26 12", class_="swatch wider",
                   aria_hidden="true")  # fmt: skip
        keys.append(h("span", swatch, name, class_="key"))
    return h("p", *keys, class_="legend")


def part_table(answer: Json) -> Markup | None:
    """Return the parts of a mean step, before and after, with what is longer as a bar."""
    rows: Sequence[Json] = answer["parts"]
    if not rows:
        return None
    whole = max(sum(row[side] for row in rows) for side in ("before_ns", "after_ns"))
    # What is next to nothing must not look like much.
    most = max(max((abs(row["change_ns"]) for row in rows), default=0), whole * _LEAST_FULL)
    body = []
    for row in rows:
        held = "yes" if row["significant"] else ""
        body.append(
            h(
                "tr",
                h("td", part_name(row, answer)),
                h("td", precise_ns(row["before_ns"]), class_="number"),
                h("td", precise_ns(row["after_ns"]), class_="number"),
                h("td", signed_ns(row["change_ns"]), class_="number"),
                h("td", _bar(row["change_ns"], most, held=row["significant"])),
                h("td", held),
                class_="bad" if row["significant"] and row["change_ns"] > 0 else None,
            )
        )
    return _table(("part", "before", "after", "change", "less or more", "beyond chance"), body)


def compared_ranks(answer: Json) -> Markup | None:
    """Return own work of ranks before and after, of many those that changed most."""
    named = {*answer["slower_ranks"], *answer["faster_ranks"]}
    rows = sorted(
        answer["ranks"], key=lambda row: (row["rank"] not in named, -abs(row["change_ratio"]))
    )
    if not rows:
        return None
    shown = sorted(rows[:MOST_RANKS], key=lambda row: int(row["rank"]))
    most = max(max(abs(row["change_ratio"]) for row in shown), _LEAST_FULL)
    body = []
    for row in shown:
        nodes = [clean(row[key] or "") for key in ("node_before", "node_after")]
        on = nodes[0] if nodes[0] == nodes[1] else " \u2192 ".join(nodes)
        body.append(
            h(
                "tr",
                h("td", f"{row['rank']:,}", class_="number"),
                h("td", on),
                h("td", precise_ns(row["before_ns"]), class_="number"),
                h("td", precise_ns(row["after_ns"]), class_="number"),
                h("td", signed_ratio(row["change_ratio"]), class_="number"),
                h("td", _bar(row["change_ratio"], most, held=bool(row["verdict"]))),
                h("td", row["verdict"] or ""),
                class_="bad" if row["verdict"] == "slower" else None,
            )
        )
    return _table(("rank", "node", "before", "after", "change", "less or more", "verdict"), body)


def _bins(table: StepTable) -> Floats:
    parts = np.array_split(np.nan_to_num(table.duration_ns), min(len(table), MOST_POINTS))
    return np.array([float(np.median(part)) for part in parts])


def _bar(value: float, most: float, *, held: bool) -> Markup:
    """Return a bar to the right of the middle for what is more, to the left for what is less."""
    middle = _BAR / 2
    width = abs(value) / most * middle if most > 0 else 0.0
    x = middle if value >= 0 else middle - width
    kind = "work" if not held else "worse" if value > 0 else "comm"
    return h(
        "svg", h("rect", x=px(x), y=0, width=px(width), height=10, class_=kind),
        path(f"M{px(middle)} 0V10", "grid"), viewBox=f"0 0 {_BAR} 10", class_="bar change",
        aria_hidden="true",
    )  # fmt: skip


def _table(heads: Sequence[str], body: Sequence[Markup]) -> Markup:
    numbers = {"rank", "before", "after", "change"}
    head = [
        h("th", name, scope="col", class_="number" if name in numbers else None) for name in heads
    ]
    return h("table", h("thead", h("tr", *head)), h("tbody", *body))
