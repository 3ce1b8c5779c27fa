"""The panels that our dashboards are made of.

grafanalib's own heatmap, stat, bar gauge and table emit schemas that Grafana no
longer reads, so those are written here on its ``Panel``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attr
from grafanalib.core import GridPos, Panel, RowPanel, Target, TimeSeries

Json = dict[str, Any]

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
NEUTRAL, GOOD, WARNING, BAD = "text", "green", "orange", "red"
COLOURS_OF_IDLENESS = "Oranges"
"""One hue from light to dark: readable in grey and by people who cannot tell red from green."""


@attr.s
class OptionsPanel(Panel):  # type: ignore[misc]  # grafanalib publishes no types
    """A panel that is its plugin's name, its options and its field settings."""

    plugin = ""
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


@attr.s
class StatPanel(OptionsPanel):
    """One figure, large."""

    plugin = "stat"


@attr.s
class BarGaugePanel(OptionsPanel):
    """One bar per series."""

    plugin = "bargauge"


@attr.s
class HeatmapPanel(OptionsPanel):
    """One row of cells per series, over time."""

    plugin = "heatmap"


@attr.s
class TablePanel(OptionsPanel):
    """One row per series."""

    plugin = "table"


def query(expr: str, legend: str = "", *, instant: bool = False, table: bool = False) -> Target:
    """Return a Prometheus query; ``panel_targets`` gives it its letter."""
    return Target(
        expr=expr,
        legendFormat=legend or "__auto",
        instant=instant,
        format="table" if table else "time_series",
        datasource=DATA_SOURCE,
    )


def _common(
    title: str,
    about: str,
    targets: list[Target],
    place: GridPos,
    transformations: Sequence[Json] = (),
) -> Json:
    lettered = [attr.evolve(t, refId=chr(ord("A") + i)) for i, t in enumerate(targets)]
    return {
        "title": title,
        "description": about,
        "targets": lettered,
        "gridPos": place,
        "dataSource": DATA_SOURCE,
        "maxDataPoints": None,  # grafanalib's 100 makes charts coarse
        "transformations": list(transformations),
    }


def _last_value() -> Json:
    return {"values": False, "calcs": ["lastNotNull"], "fields": ""}


def steps(*limits: tuple[float | None, str]) -> Json:
    """Return thresholds ``(from, colour)``; the first begins at None."""
    return {
        "mode": "absolute",
        "steps": [{"value": value, "color": colour} for value, colour in limits],
    }


def row(title: str, top: int) -> RowPanel:
    """Return a heading over the panels that follow it."""
    return RowPanel(title=title, gridPos=GridPos(h=1, w=24, x=0, y=top))


def stat(
    title: str,
    about: str,
    target: Target,
    place: GridPos,
    *,
    unit: str,
    limits: Json,
    decimals: int,
) -> StatPanel:
    """Return one figure with the colour of its threshold and a sparkline."""
    return StatPanel(
        **_common(title, about, [target], place),
        unit=unit,
        options={
            "graphMode": "area",
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
            "thresholds": limits,
            "color": {"mode": "thresholds"},
            "decimals": decimals,
            "noValue": "no data",
        },
    )


def bar_gauge(
    title: str, about: str, target: Target, place: GridPos, *, unit: str
) -> BarGaugePanel:
    """Return one bar per series, its latest value."""
    return BarGaugePanel(
        **_common(title, about, [target], place),
        unit=unit,
        options={
            "displayMode": "basic",
            "valueMode": "text",
            "namePlacement": "left",
            "showUnfilled": True,
            "sizing": "auto",
            "minVizWidth": 8,
            "minVizHeight": 16,
            "maxVizHeight": 300,
            "orientation": "horizontal",
            "reduceOptions": _last_value(),
            "legend": {
                "displayMode": "list",
                "placement": "bottom",
                "calcs": [],
                "showLegend": False,
            },
        },
        defaults={"min": 0, "color": {"mode": "continuous-YlRd"}},
    )


def heatmap(title: str, about: str, target: Target, place: GridPos) -> HeatmapPanel:
    """Return cells of a ratio from 0 to 1, one row per series."""
    return HeatmapPanel(
        **_common(title, about, [target], place),
        unit="percentunit",
        options={
            "calculate": False,
            "color": {
                "mode": "scheme",
                "scheme": COLOURS_OF_IDLENESS,
                "fill": "dark-orange",
                "scale": "linear",
                "exponent": 0.5,
                "steps": 64,
                "reverse": False,
                "min": 0,
                "max": 1,
            },
            "rowsFrame": {"layout": "auto", "value": "idle"},
            "showValue": "never",
            "cellGap": 1,
            "cellValues": {"unit": "percentunit", "decimals": 0},
            "yAxis": {"axisPlacement": "left", "reverse": True},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": False, "showColorScale": True},
            "exemplars": {"color": "rgba(255,0,255,0.7)"},
        },
        defaults={"custom": {"scaleDistribution": {"type": "linear"}}},
    )


def table(
    title: str,
    about: str,
    targets: list[Target],
    place: GridPos,
    *,
    columns: dict[str, str],
    units: dict[str, str],
    sort_by: str,
) -> TablePanel:
    """Return the queries joined by their labels; ``columns`` names and orders what is shown.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: instant queries in table format.
        place: position and size.
        columns: field -> heading; the values are ``Value #A``, ``Value #B``...
        units: heading -> unit.
        sort_by: heading of the column that sorts the rows, largest first.
    """
    order = {field: index for index, field in enumerate(columns)}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
        {
            "id": "organize",
            "options": {"indexByName": order, "renameByName": columns, "excludeByName": {}},
        },
    ]
    return TablePanel(
        **_common(title, about, targets, place, transformations),
        options={
            "frameIndex": 0,
            "showHeader": True,
            "cellHeight": "sm",
            "sortBy": [{"displayName": sort_by, "desc": True}],
        },
        defaults={
            "custom": {"align": "auto", "inspect": False, "cellOptions": {"type": "auto"}},
            "noValue": "none",
        },
        overrides=[
            {
                "matcher": {"id": "byName", "options": heading},
                "properties": [{"id": "unit", "value": unit}],
            }
            for heading, unit in units.items()
        ],
    )


def lines(
    title: str,
    about: str,
    targets: list[Target],
    place: GridPos,
    *,
    unit: str,
    stacked: bool = False,
    top_is_one: bool = False,
) -> TimeSeries:
    """Return lines over time, or filled and stacked ones."""
    return TimeSeries(
        **_common(title, about, targets, place),
        unit=unit,
        fillOpacity=60 if stacked else 5,
        lineWidth=1,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        legendPlacement="bottom",
        valueMin=0,
        valueMax=1 if top_is_one else None,
    )
