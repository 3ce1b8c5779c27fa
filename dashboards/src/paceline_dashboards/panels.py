"""Panels that show the newest figures: stat, bar gauge, table; and what all panels are made of.

grafanalib's own stat, bar gauge, table and heatmap emit schemas that Grafana no
longer reads, so those are written here on its ``Panel``. Charts over time are in ``charts``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attr
from grafanalib.core import Panel, Target

from paceline_dashboards.targets import lettered, source_of

Json = dict[str, Any]


@attr.s
class OptionsPanel(Panel):  # type: ignore[misc]  # grafanalib publishes no types
    """A panel that is its plugin's name, its options and its field settings."""

    plugin: str = attr.ib(default="")
    timeFrom: str | None = attr.ib(default=None)
    unit: str = attr.ib(default="")
    options: Json = attr.ib(factory=dict)
    defaults: Json = attr.ib(factory=dict)
    overrides: list[Json] = attr.ib(factory=list)

    def to_json_data(self) -> Json:
        """Return the panel as Grafana's JSON."""
        defaults = {"unit": self.unit, **self.defaults}
        panel: Json = self.panel_json(
            {
                "type": self.plugin,
                "options": self.options,
                "fieldConfig": {"defaults": defaults, "overrides": self.overrides},
            }
        )
        return panel


def common(
    title: str, about: str, targets: list[Target], transformations: Sequence[Json] = ()
) -> Json:
    """Return what every panel has: title, description, queries and their data source."""
    return {
        "title": title,
        "description": about,
        "targets": lettered(targets),
        "dataSource": source_of(targets),
        "maxDataPoints": None,  # grafanalib's 100 makes charts coarse
        "transformations": list(transformations),
    }


def limits(*steps: tuple[float | None, str]) -> Json:
    """Return thresholds ``(from, colour)``; the first begins at None."""
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in steps],
    }


def override(name: str, *, matcher: str = "byName", **properties: Any) -> Json:
    """Return settings of the fields called ``name``; ``custom__x`` is ``custom.x``."""
    return {
        "matcher": {"id": matcher, "options": name},
        "properties": [
            {"id": key.replace("__", "."), "value": value} for key, value in properties.items()
        ],
    }


def link(title: str, url: str, *, new_tab: bool = False) -> list[Json]:
    """Return the link of a field."""
    return [{"title": title, "url": url, "targetBlank": new_tab}]


def _last_value() -> Json:
    return {"values": False, "calcs": ["lastNotNull"], "fields": ""}


def stat(
    title: str,
    about: str,
    target: Target,
    *,
    unit: str = "none",
    thresholds: Json,
    decimals: int | None = 0,
    mappings: Sequence[Json] = (),
    spark: bool = True,
    none: str = "no data",
) -> OptionsPanel:
    """Return one figure with the colour of its threshold, and a sparkline."""
    return OptionsPanel(
        **common(title, about, [target]),
        plugin="stat",
        unit=unit,
        options={
            "graphMode": "area" if spark else "none",
            "colorMode": "value",
            "justifyMode": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
            "orientation": "auto",
            "reduceOptions": _last_value(),
        },
        defaults={
            "thresholds": thresholds,
            "color": {"mode": "thresholds"},
            "mappings": list(mappings),
            "noValue": none,
            **({} if decimals is None else {"decimals": decimals}),
        },
    )


def bar_gauge(
    title: str,
    about: str,
    target: Target,
    *,
    unit: str = "none",
    links: Sequence[Json] = (),
    decimals: int = 2,
    colour: str = "",
) -> OptionsPanel:
    """Return one bar per series, its latest value; from yellow to red unless there is a colour."""
    shade = {"mode": "fixed", "fixedColor": colour} if colour else {"mode": "continuous-YlRd"}
    return OptionsPanel(
        **common(title, about, [target]),
        plugin="bargauge",
        unit=unit,
        options={
            "displayMode": "basic",
            "valueMode": "text",
            "namePlacement": "left",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizWidth": 8,
            "minVizHeight": 16,
            "maxVizHeight": 36,
            "orientation": "horizontal",
            "reduceOptions": _last_value(),
            "legend": {
                "displayMode": "list",
                "placement": "bottom",
                "calcs": [],
                "showLegend": False,
            },
        },
        defaults={
            "min": 0,
            "decimals": decimals,
            "color": shade,
            "links": list(links),
            "noValue": "none",
        },
    )


def table(
    title: str,
    about: str,
    targets: list[Target],
    *,
    columns: Mapping[str, str],
    sort_by: str,
    overrides: Sequence[Json] = (),
    descending: bool = True,
) -> OptionsPanel:
    """Return the queries joined by their labels; ``columns`` names and orders what is shown.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: queries in table format.
        columns: field -> heading; the values are ``Value #A``, ``Value #B``... of several queries.
        sort_by: heading of the column that sorts the rows.
        overrides: settings of columns, by heading.
        descending: the largest comes first.
    """
    order = {field: index for index, field in enumerate(columns)}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
        {
            "id": "organize",
            "options": {"indexByName": order, "renameByName": dict(columns), "excludeByName": {}},
        },
    ]
    return OptionsPanel(
        **common(title, about, targets, transformations),
        plugin="table",
        options={
            "frameIndex": 0,
            "showHeader": True,
            "cellHeight": "sm",
            "sortBy": [{"displayName": sort_by, "desc": descending}],
        },
        defaults={
            "custom": {
                "align": "auto",
                "inspect": False,
                "cellOptions": {"type": "auto"},
                "minWidth": 80,
            },
            "noValue": "none",
        },
        overrides=list(overrides),
    )
