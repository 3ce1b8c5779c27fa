"""What Grafana's data sources would hand to a panel: data frames as JSON."""

from __future__ import annotations

import math
import re
from typing import Any

from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.recording import Prometheus

Json = dict[str, Any]
SQL_COLUMNS = {
    "sawtooth": ("at_s", "metric", "own_s"),
    "lanes": ("time", "metric", "value"),
    "steps": ("step", "began", "took_s", "stood_s", "last_in", "from_ms", "to_ms"),
}


def of_panel(panel: Json, view: View, prometheus: Prometheus, answers: Json) -> list[Json]:
    """Return the frames of all queries of a panel."""
    frames: list[Json] = []
    several = len(panel["targets"]) > 1
    for target in panel["targets"]:
        if "rawSql" in target:
            frames += _sql(target, answers[target["rawSql"]])
            continue
        expr = view.promql(target["expr"])
        if target["instant"]:
            found = prometheus.instant(expr, view.to_s)
            series = [(one["metric"], [one["value"]]) for one in found]
        else:
            found = prometheus.range(expr, view.from_s, view.to_s, view.step_s)
            series = [(one["metric"], one["values"]) for one in found]
        if target["format"] == "table":
            frames += _table(series, f"Value #{target['refId']}" if several else "Value")
        else:
            frames += [_line(labels, values, target, view) for labels, values in series]
    return frames


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _field(name: str, kind: str, values: list[Any], **more: Any) -> Json:
    return {"name": name, "type": kind, "values": values, "config": {}, **more}


def _line(labels: Json, values: list[Any], target: Json, view: View) -> Json:
    # Grafana fills the grid of the query: where Prometheus has no sample there is a gap.
    told = {round(at): _number(text) for at, text in values}
    grid = [round(at) for at, _ in values]
    if not target["instant"] and grid:
        grid = list(range(grid[0], grid[-1] + 1, view.step_s))
    legend = target["legendFormat"]
    if legend == "__auto":
        legend = labels.get("__name__") or target["expr"]
    name = re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), legend)
    return {
        "refId": target["refId"],
        "fields": [
            _field("Time", "time", [at * 1000 for at in grid]),
            _field(
                "Value", "number", [told.get(at) for at in grid],
                labels=labels, config={"displayNameFromDS": name},
            ),
        ],
    }  # fmt: skip


def _table(series: list[Any], value: str) -> list[Json]:
    names = sorted({name for labels, _ in series for name in labels})
    if not series:
        return []
    return [
        {
            "fields": [
                _field("Time", "time", [values[0][0] * 1000 for _, values in series]),
                *(
                    _field(name, "string", [labels.get(name, "") for labels, _ in series])
                    for name in names
                ),
                _field(value, "number", [_number(values[0][1]) for _, values in series]),
            ]
        }
    ]


def _sql(target: Json, rows: list[list[Any]]) -> list[Json]:
    if not rows:
        return []
    if target["format"] == "time_series":
        return [_wide(rows)]
    names = SQL_COLUMNS["sawtooth" if len(rows[0]) == 3 else "steps"]
    fields = []
    for place, name in enumerate(names):
        column = [row[place] for row in rows]
        kind = "time" if name == "began" else "number"
        if any(isinstance(value, str) for value in column):
            kind = "string"
        fields.append(_field(name, kind, column))
    return [{"fields": fields}]


def _wide(rows: list[list[Any]]) -> Json:
    """Return long rows as one frame with a field a metric, as Grafana's server does."""
    times = sorted({row[0] for row in rows})
    place = {at: index for index, at in enumerate(times)}
    columns: dict[str, list[float | None]] = {
        name: [None] * len(times) for name in sorted({row[1] for row in rows})
    }
    for at, name, value in rows:
        columns[name][place[at]] = value
    return {
        "fields": [
            _field("time", "time", times),
            *(_field(name, "number", values) for name, values in columns.items()),
        ]
    }
