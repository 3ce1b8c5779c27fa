"""Step time over the whole attempt, and who waits when, as SVG of bounded size."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.export.html.markup import Markup, h, path, px
from paceline_service.export.step_table import Floats, StepTable
from paceline_service.export.units import format_ns, format_ratio
from paceline_service.export.words import clean

WIDTH, LEFT, RIGHT = 1040, 150, 4
MOST_POINTS = 400
MOST_COLUMNS = 160
MOST_ROWS = 96
LEVELS = 6
_HEIGHT = 110


def step_times(table: StepTable, marks: Sequence[tuple[int, str]]) -> Markup:
    """Return step times as a line with the span of what was joined; ``marks`` are (step, word)."""
    bins = np.array_split(np.nan_to_num(table.duration_ns), min(len(table), MOST_POINTS))
    middle = [float(np.median(part)) for part in bins]
    high = [float(part.max()) for part in bins]
    low = [float(part.min()) for part in bins]
    # One long pause must not flatten the rest.
    top = max(float(np.quantile(high, 0.97)) * 1.15, max(middle), 1.0)
    right = WIDTH - RIGHT

    def x_of(place: float) -> float:
        return LEFT + place / max(len(bins) - 1, 1) * (right - LEFT)

    def y_of(value: float) -> float:
        return 8 + (1 - min(value / top, 1.0)) * (_HEIGHT - 26)

    upper = [f"{px(x_of(place))} {px(y_of(value))}" for place, value in enumerate(high)]
    lower = [f"{px(x_of(place))} {px(y_of(value))}" for place, value in enumerate(low)]
    line = [f"{px(x_of(place))} {px(y_of(value))}" for place, value in enumerate(middle)]
    parts = [
        path(f"M{LEFT} {px(y_of(0))}H{right}M{LEFT} {px(y_of(top))}H{right}", "grid"),
        path("M" + "L".join([*upper, *reversed(lower)]) + "z", "band"),
        path("M" + "L".join(line), "line"),
        h("text", format_ns(round(top)), x=LEFT - 8, y=px(y_of(top) + 4), class_="quiet end"),
        h("text", "0", x=LEFT - 8, y=px(y_of(0) + 4), class_="quiet end"),
        h("text", f"step {table.steps[0]:,}", x=LEFT, y=_HEIGHT - 5, class_="quiet"),
        h("text", f"{table.steps[-1]:,}", x=right, y=_HEIGHT - 5, class_="quiet end"),
    ]
    for step, word in marks:
        if not table.steps[0] <= step <= table.steps[-1]:
            continue
        place = int(np.searchsorted(table.steps, step)) / max(len(table) - 1, 1)
        x = LEFT + place * (right - LEFT)
        end = x > WIDTH * 0.75
        parts += [
            path(f"M{px(x)} 4V{_HEIGHT - 18}", "since"),
            h(
                "text", word, x=px(x - 5 if end else x + 5), y=_HEIGHT - 24,
                class_="mark end" if end else "mark",
            ),
        ]  # fmt: skip
    told = (
        f"Step time of steps {table.steps[0]} to {table.steps[-1]}, up to {format_ns(round(top))}"
    )
    return h(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {_HEIGHT}", role="img", aria_label=told, class_="chart"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatRows:
    """The rows of a heatmap: names, and the ranks of each."""

    names: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    what: str


def heat_rows(world_size: int, nodes: Mapping[int, str]) -> HeatRows:
    """Return a row per rank, or per node, or per run of ranks: whatever stays bounded."""
    if world_size <= MOST_ROWS:
        return HeatRows(
            names=tuple(f"rank {rank}" for rank in range(world_size)),
            ranks=tuple((rank,) for rank in range(world_size)),
            what="a row per rank",
        )
    members: dict[str, list[int]] = {}
    for rank in range(world_size):
        members.setdefault(nodes.get(rank, ""), []).append(rank)
    least = "; of each it shows the rank that waited least"
    if 1 < len(members) <= 2 * MOST_ROWS and "" not in members:
        return HeatRows(
            names=tuple(members), ranks=tuple(tuple(ranks) for ranks in members.values()),
            what="a row per node" + least,
        )  # fmt: skip
    size = -(-world_size // MOST_ROWS)
    runs = [
        tuple(range(first, min(first + size, world_size))) for first in range(0, world_size, size)
    ]
    return HeatRows(
        names=tuple(f"ranks {run[0]}-{run[-1]}" for run in runs), ranks=tuple(runs),
        what=f"a row for {size} ranks" + least,
    )  # fmt: skip


def heatmap(
    table: StepTable, rows: HeatRows, flagged: Collection[int], first_step: int | None
) -> tuple[Markup, float]:
    """Return who waits when, and the share of a step that the strongest colour stands for."""
    shares = _shares(table, rows)
    known = shares[~np.isnan(shares)]
    top = max(float(np.quantile(known, 0.98)) if known.size else 0.0, 0.02)
    levels = np.clip(np.nan_to_num(np.round(shares / top * LEVELS), nan=0), 0, LEVELS).astype(int)
    row_px = max(min(16.0, 420 / len(rows.names)), 3.0)
    height = len(rows.names) * row_px + 20
    columns = shares.shape[1]
    column_px = (WIDTH - LEFT - RIGHT) / columns
    paths: list[list[str]] = [[] for _ in range(LEVELS + 1)]
    for row in range(len(rows.names)):
        _runs(levels[row], row * row_px, row_px, column_px, paths)
    parts = [
        h("rect", x=LEFT, y=0, width=WIDTH - LEFT - RIGHT, height=px(len(rows.names) * row_px),
          class_="heat-0"),
        *(path("".join(d), f"heat-{level}") for level, d in enumerate(paths) if d),
        *_names(rows, flagged, row_px),
        h("text", f"step {table.steps[0]:,}", x=LEFT, y=px(height - 4), class_="quiet"),
        h("text", f"{table.steps[-1]:,}", x=WIDTH - RIGHT, y=px(height - 4), class_="quiet end"),
    ]  # fmt: skip
    if first_step is not None and table.steps[0] < first_step <= table.steps[-1]:
        place = int(np.searchsorted(table.steps, first_step)) / len(table)
        x = LEFT + place * (WIDTH - LEFT - RIGHT)
        parts.append(path(f"M{px(x)} 0V{px(height - 16)}", "since"))
    told = (
        f"Waiting of steps {table.steps[0]} to {table.steps[-1]}, {rows.what}; the strongest is "
        f"{format_ratio(top)} of a step"
    )
    drawn = h(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {px(height)}", role="img", aria_label=told,
        class_="chart heat",
    )  # fmt: skip
    return drawn, top


def _shares(table: StepTable, rows: HeatRows) -> Floats:
    """Return the share of each column's time that each row waited, NaN where nothing is known."""
    parts = np.array_split(np.arange(len(table)), min(len(table), MOST_COLUMNS))
    durations = np.maximum(np.nan_to_num(table.duration_ns), 1.0)
    places = [table.places(ranks) for ranks in rows.ranks]
    out = np.full((len(rows.names), len(parts)), np.nan)
    for column, part in enumerate(parts):
        waits = table.wait_ns[part]
        known = (~np.isnan(waits)).any(axis=0)
        total = np.where(known, np.nansum(waits, axis=0), np.nan) / durations[part].sum()
        for row, of in enumerate(places):
            of_row = total[of]
            of_row = of_row[~np.isnan(of_row)]
            if of_row.size:
                out[row, column] = of_row.min()
    return out


def _runs(
    levels: np.ndarray[tuple[int, ...], np.dtype[np.int_]],
    y: float,
    row_px: float,
    column_px: float,
    paths: list[list[str]],
) -> None:
    """Add a rectangle for each run of columns of one level."""
    begins = np.flatnonzero(np.append(True, levels[1:] != levels[:-1]))
    ends = np.append(begins[1:], len(levels))
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        level = int(levels[begin])
        if level:
            x, width = LEFT + begin * column_px, (end - begin) * column_px
            paths[level].append(f"M{px(x)} {px(y)}h{px(width)}v{px(row_px)}h-{px(width)}z")


def _names(rows: HeatRows, flagged: Collection[int], row_px: float) -> list[Markup]:
    """Return the names of rows: all where there is room, else those that are named by findings."""
    parts = []
    roomy, free_y = row_px >= 11, 0.0
    for row, (name, ranks) in enumerate(zip(rows.names, rows.ranks, strict=True)):
        bad = any(rank in flagged for rank in ranks)
        if not roomy and not bad:
            continue
        y = (row + 0.5) * row_px + 4
        if y < free_y:
            continue  # it would lie upon the name before it
        free_y = y + 11
        label = f"{clean(name)[:24]} \u25b6" if bad else clean(name)[:24]
        parts.append(h("text", label, x=LEFT - 8, y=px(y), class_="name bad end" if bad else
                       "name end"))  # fmt: skip
    return parts
