"""The sawtooth as SVG: a lane per rank, steps from left to right, each as wide as it was long.

A rank is drawn at full height while it works, at half height in exposed communication, and as a
thin floor while it waits. The order within a step is by kind, as on the page.
"""

from __future__ import annotations

import numpy as np

from paceline_service.export.html.markup import Markup, h, join, path, px
from paceline_service.export.html.story import Scene
from paceline_service.export.step_table import StepTable
from paceline_service.export.telling import Lane
from paceline_service.export.units import format_ns, format_ratio
from paceline_service.export.words import clean

WIDTH, LEFT, RIGHT = 1040, 150, 130
AXIS, LANE, GAP, FLOOR = 26, 26, 7, 3
PHASES = ("host", "input", "forward", "backward", "optimizer", "copy", "checkpoint")
_SPACE = 1.5
"""Between two teeth."""
_LONGEST = 3.0
"""Times the median: a longer step (a checkpoint) is drawn as wide as this."""


def sawtooth(scene: Scene, first_step: int | None) -> Markup:
    """Return the drawing of a scene; ``first_step`` is where the finding begins."""
    table = scene.table
    edges = _edges(table)
    height = AXIS + len(scene.lanes) * (LANE + GAP)
    parts = [_axis(table, edges, height)]
    for number, lane in enumerate(scene.lanes):
        parts.append(_lane(table, lane, edges, AXIS + number * (LANE + GAP)))
    if first_step is not None and first_step in table.steps:
        x = edges[table.steps.index(first_step)]
        parts.append(path(f"M{px(x)} {AXIS - 6}V{height}", "since"))
    told = f"Sawtooth of steps {table.steps[0]} to {table.steps[-1]}: {words_of(scene)}"
    return h(
        "svg", *parts, viewBox=f"0 0 {WIDTH} {height}", role="img", aria_label=told,
        class_="chart sawtooth",
    )  # fmt: skip


def words_of(scene: Scene) -> str:
    """Return who waits how much in a scene, as a sentence."""
    slow = [lane for lane in scene.lanes if lane.named]
    rest = [lane for lane in scene.lanes if not lane.named]
    if not slow or not rest:
        return f"the ranks wait {_waits(scene.table, scene.lanes)} of the time drawn."
    who = slow[0].name if len(slow) == 1 else f"the {len(slow)} named ranks drawn"
    wait = "waits" if len(slow) == 1 else "wait"
    return (
        f"{who} {wait} {_waits(scene.table, slow)} of the time drawn, "
        f"the others {_waits(scene.table, rest)}."
    )


def legend(scene: Scene) -> Markup:
    """Return what the colours and heights mean."""
    kinds = _kinds(scene.table)
    entries = [*kinds, "comm", "wait"]
    names = {
        "work": "own work (full height)", "comm": "exposed communication (half height)",
        "wait": "waiting (floor)",
    }  # fmt: skip
    marks = [h("span", _swatch(kind), names.get(kind, kind), class_="key") for kind in entries]
    marks.append(h("span", h("span", "\u25bc", class_="arrived"), " arrived last", class_="key"))
    return h("p", *marks, class_="legend")


def _swatch(kind: str) -> Markup:
    height = {"comm": 6, "wait": FLOOR}.get(kind, 12)
    return h(
        "svg", h("rect", y=12 - height, width=14, height=height, class_=kind),
        viewBox="0 0 14 12", class_="swatch", aria_hidden="true",
    )  # fmt: skip


def _kinds(table: StepTable) -> list[str]:
    if table.phase_ns is None:
        return ["work"]
    told = np.nansum(table.phase_ns, axis=(0, 1))
    kinds = [name for name in PHASES if name in table.phases and told[table.phases.index(name)] > 0]
    # What no phase covers is the host's; where nothing is covered, no phase is known.
    return ["work"] if kinds in ([], ["host"]) else kinds


def _edges(table: StepTable) -> list[float]:
    """Return the left edge of every step, and the right one of the last."""
    durations = np.maximum(np.nan_to_num(table.duration_ns), 1.0)
    durations = np.minimum(durations, np.median(durations) * _LONGEST)
    ends = np.concatenate([[0.0], np.cumsum(durations)])
    return [float(x) for x in LEFT + ends / ends[-1] * (WIDTH - LEFT - RIGHT)]


def _axis(table: StepTable, edges: list[float], height: int) -> Markup:
    parts = [h("text", "step", x=LEFT - 8, y=14, class_="quiet end")]
    every = max(-(-len(table) // 12), 1)
    # Round numbers where every step is there; profilers and samples leave some out.
    without_gaps = table.steps[-1] - table.steps[0] == len(table) - 1
    for place, step in enumerate(table.steps):
        if (step if without_gaps else place) % every == 0 or len(table) == 1:
            middle = (edges[place] + edges[place + 1]) / 2
            parts.append(h("text", f"{step:,}", x=px(middle), y=14, class_="quiet middle"))
    parts += [
        h("text", "waits", x=WIDTH - 74, y=14, class_="quiet end"),
        h("text", "own work", x=WIDTH, y=14, class_="quiet end"),
    ]
    barriers = "".join(f"M{px(x)} {AXIS - 5}V{height}" for x in edges[1:])
    return join([path(barriers, "barrier"), *parts])


def _lane(table: StepTable, lane: Lane, edges: list[float], top: float) -> Markup:
    places = table.places(lane.ranks)
    slow = lane.named
    middle = top + LANE / 2 + 4
    name = clean(lane.name)
    label = f"{name} ({lane.role})" if lane.role else name
    parts = [h("text", label[:30], x=0, y=px(middle), class_="name bad" if slow else "name")]
    if not places:
        parts.append(h("text", "no data", x=LEFT, y=px(middle), class_="quiet"))
        return h("g", *parts)
    kinds = _kinds(table)
    paths: dict[str, list[str]] = {kind: [] for kind in (*kinds, "comm", "wait")}
    marks: list[str] = []
    for step in range(len(table)):
        _tooth(table, step, places, kinds, (edges[step], edges[step + 1], top), paths)
        if table.slowest_rank[step] in lane.ranks:
            x = edges[step + 1] - 5
            marks.append(f"M{px(x - 4)} {px(top + 2)}h8l-4 6z")
    parts += [path("".join(d), kind) for kind, d in paths.items() if d]
    if marks:
        parts.append(path("".join(marks), "last"))
    wait, own = _lane_figures(table, places)
    parts += [
        h("text", wait, x=WIDTH - 74, y=px(middle), class_="figure end"),
        h("text", own, x=WIDTH, y=px(middle), class_="figure end"),
    ]
    return h("g", h("title", f"{label}{' on ' + clean(lane.node) if lane.node else ''}"), *parts)


def _tooth(
    table: StepTable,
    step: int,
    places: list[int],
    kinds: list[str],
    where: tuple[float, float, float],
    paths: dict[str, list[str]],
) -> None:
    left, right, top = where
    self_ns = table.self_ns[step, places]
    if np.isnan(self_ns).all():
        return
    own = float(np.nanmean(self_ns))
    comm = _mean(table.comm_ns[step, places])
    wait = _mean(table.wait_ns[step, places])
    span = max(float(np.nan_to_num(table.duration_ns[step])), own + comm + wait, 1.0)
    scale = max(right - left - _SPACE, 1.0) / span
    x, bottom = left + _SPACE / 2, top + LANE
    for kind, part in _work(table, step, places, kinds, own):
        x = _rect(paths[kind], x, top, part * scale, LANE)
    x = _rect(paths["comm"], x, bottom - LANE / 2, comm * scale, LANE / 2)
    _rect(paths["wait"], x, bottom - FLOOR, wait * scale, FLOOR)


def _work(
    table: StepTable, step: int, places: list[int], kinds: list[str], own: float
) -> list[tuple[str, float]]:
    """Return the parts of the own work; without phases it is one part."""
    if table.phase_ns is None or kinds == ["work"]:
        return [(kinds[0], own)]
    told = [(kind, _mean(table.phase_ns[step, places, table.phases.index(kind)])) for kind in kinds]
    known = sum(part for _, part in told)
    if known <= 0:
        return [(kinds[0], own)]
    return [(kind, part * own / known) for kind, part in told]


def _rect(path: list[str], x: float, y: float, width: float, height: float) -> float:
    if width >= 0.05:
        path.append(f"M{px(x)} {px(y)}h{px(width)}v{px(height)}h-{px(width)}z")
    return x + width


def _mean(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else 0.0


def _lane_figures(table: StepTable, places: list[int]) -> tuple[str, str]:
    self_ns = table.self_ns[:, places]
    count = int((~np.isnan(self_ns)).sum())
    if not count:
        return "", "no data"
    share = _share(table, places)
    return format_ratio(share), format_ns(round(float(np.nansum(self_ns)) / count))


def _waits(table: StepTable, lanes: tuple[Lane, ...] | list[Lane]) -> str:
    places = [place for lane in lanes for place in table.places(lane.ranks)]
    return format_ratio(_share(table, places))


def _share(table: StepTable, places: list[int]) -> float:
    wait = float(np.nansum(table.wait_ns[:, places]))
    rest = np.nansum(table.self_ns[:, places]) + np.nansum(table.comm_ns[:, places])
    return wait / max(wait + float(rest), 1.0)
