"""Panels over time, or over ranks and steps: lines, heatmap, states, bars, the sawtooth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grafanalib.core import Target, TimeSeries

from paceline_dashboards.panels import OptionsPanel, common, override
from paceline_dashboards.words import NAMED, QUIET

Json = dict[str, Any]

COLOURS_OF_IDLENESS = "Oranges"
"""One hue from light to dark: readable in grey and by people who cannot tell red from green."""
FULL_COLOUR = 0.5
"""The idle share that has the strongest colour: beyond it a job is in trouble anyway."""
MEDIAN = "median of all ranks"
LIMIT, WORLD_SIZE, EXPECTED = "limit", "world size", "expected"
_COMPARED = (MEDIAN, LIMIT, WORLD_SIZE, EXPECTED)
"""Lines that others are compared with."""
_LEGEND = {"displayMode": "list", "placement": "bottom", "calcs": [], "showLegend": True}
_NO_LEGEND = {**_LEGEND, "showLegend": False}


def lines(
    title: str,
    about: str,
    targets: list[Target],
    *,
    unit: str = "none",
    stacked: bool = False,
    top_is_one: bool = False,
    from_zero: bool = True,
    at_least: float | None = None,
    overrides: Sequence[Json] = (),
    none: str = "",
) -> TimeSeries:
    """Return lines over time, or filled and stacked ones.

    A line that has one of the names ``_COMPARED`` is drawn as what others are compared with.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: queries over time.
        unit: of the values.
        stacked: on each other, filled.
        top_is_one: the scale ends at 1.
        from_zero: the scale begins at 0.
        at_least: how far the scale goes where all is 0.
        overrides: settings of lines, by name.
        none: what is said where there is nothing.
    """
    return TimeSeries(
        **common(title, about, targets),
        unit=unit,
        fillOpacity=60 if stacked else 0,
        lineWidth=1,
        showPoints="never",
        stacking={"mode": "normal" if stacked else "none", "group": "A"},
        tooltipMode="multi",
        tooltipSort="desc",
        legendPlacement="bottom",
        valueMin=0 if from_zero else None,
        valueMax=1 if top_is_one else None,
        axisSoftMax=at_least,
        overrides=[*_compared(), *overrides],
        # grafanalib knows no such setting.
        extraJson={"fieldConfig": {"defaults": {"noValue": none}}} if none else None,
    )


def _compared() -> list[Json]:
    return [
        override(
            name,
            color={"mode": "fixed", "fixedColor": "text"},
            custom__lineStyle={"fill": "dash", "dash": [8, 6]},
            custom__lineWidth=2,
            custom__fillOpacity=0,
        )
        for name in _COMPARED
    ]


def heatmap(title: str, about: str, target: Target) -> OptionsPanel:
    """Return cells of a ratio from 0 to ``FULL_COLOUR``, one row per series."""
    return OptionsPanel(
        **common(title, about, [target]),
        plugin="heatmap",
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
                "max": FULL_COLOUR,
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


def states(
    title: str,
    about: str,
    targets: list[Target],
    *,
    mappings: Sequence[Json],
    words: bool = True,
    filled: bool = False,
    row_height: float = 0.8,
    none: str = "none",
    newest: str = "",
) -> OptionsPanel:
    """Return a lane per series, coloured by the state that its number stands for.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: queries of numbers.
        mappings: from numbers to words and colours.
        words: the words are written into the lanes.
        filled: a state lasts until the next; otherwise a missing sample is a gap.
        row_height: part of the lane that is drawn.
        none: what is said where there is nothing.
        newest: while a dashboard follows the present, show only so much of it.
    """
    return OptionsPanel(
        **common(title, about, targets),
        timeFrom=newest or None,
        plugin="state-timeline",
        options={
            "mergeValues": True,
            "showValue": "auto" if words else "never",
            "alignValue": "left",
            "rowHeight": row_height,
            "perPage": 64,
            "legend": _NO_LEGEND if words else _LEGEND,
            "tooltip": {"mode": "single", "sort": "none"},
        },
        defaults={
            "custom": {
                "lineWidth": 0,
                "fillOpacity": 85,
                **({"spanNulls": True} if filled else {}),
            },
            "color": {"mode": "thresholds"},
            "mappings": list(mappings),
            "noValue": none,
        },
    )


def bars(
    title: str,
    about: str,
    targets: list[Target],
    *,
    by: str,
    names: Sequence[str],
    colours: Sequence[str],
    unit: str,
    stacked: bool,
    number: bool = False,
) -> OptionsPanel:
    """Return a bar (or a stack of them) per value of the label ``by``, the queries' newest values.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: queries in table format.
        by: the label.
        names: what each query gives.
        colours: of each query.
        unit: of the values.
        stacked: on each other rather than side by side.
        number: the label is a number, and sorted as one.
    """
    values = [f"Value #{chr(ord('A') + place)}" for place in range(len(targets))]
    order = [
        {"id": "convertFieldType", "options": {"conversions": [
            {"targetField": by, "destinationType": kind}], "fields": {}}}
        for kind in ("number", "string")
    ]  # fmt: skip
    sort = {"id": "sortBy", "options": {"fields": {}, "sort": [{"field": by, "desc": False}]}}
    transformations = [
        {"id": "merge", "options": {}},
        {"id": "filterFieldsByName", "options": {"include": {"names": [by, *values]}}},
        *([order[0], sort, order[1]] if number else [sort]),
        {
            "id": "organize",
            "options": {
                "indexByName": {name: place for place, name in enumerate([by, *values])},
                "renameByName": dict(zip(values, names, strict=True)),
                "excludeByName": {},
            },
        },
    ]
    return OptionsPanel(
        **common(title, about, targets, transformations),
        plugin="barchart",
        unit=unit,
        options={
            "xField": by,
            "orientation": "auto",
            "stacking": "normal" if stacked else "none",
            "showValue": "never",
            "barWidth": 0.9,
            "barRadius": 0,
            "groupWidth": 0.8,
            "fullHighlight": False,
            "xTickLabelRotation": 0,
            "xTickLabelMaxLength": 0,
            "xTickLabelSpacing": 50,
            "legend": _LEGEND,
            "tooltip": {"mode": "multi", "sort": "none"},
        },
        defaults={
            "min": 0,
            "color": {"mode": "palette-classic"},
            "custom": {"lineWidth": 1, "fillOpacity": 85, "gradientMode": "none"},
        },
        overrides=[
            override(name, color={"mode": "fixed", "fixedColor": colour})
            for name, colour in zip(names, colours, strict=True)
        ],
    )


def sawtooth(title: str, about: str, target: Target, *, slow: str) -> OptionsPanel:
    """Return a tooth per step and rank from the columns ``at_s``, ``metric`` and ``own_s``.

    Args:
        title: the panel's title.
        about: what a reader must know.
        target: SQL in table format, ordered by ``at_s``.
        slow: regular expression of the names that are drawn as the slow ones.
    """
    x = "at_s\\metric"
    transformations = [
        {
            "id": "groupingToMatrix",
            "options": {
                "columnField": "metric",
                "rowField": "at_s",
                "valueField": "own_s",
                "emptyValue": "null",
            },
        },
        {
            "id": "convertFieldType",
            "options": {
                "conversions": [{"targetField": x, "destinationType": "number"}],
                "fields": {},
            },
        },
        {
            "id": "organize",
            "options": {"indexByName": {}, "renameByName": {x: "time"}, "excludeByName": {}},
        },
    ]
    return OptionsPanel(
        **common(title, about, [target], transformations),
        plugin="trend",
        unit="s",
        options={
            "xField": "time",
            "legend": _LEGEND,
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        defaults={
            "min": 0,
            "color": {"mode": "fixed", "fixedColor": QUIET},
            "custom": {
                "drawStyle": "line",
                "lineInterpolation": "linear",
                "lineWidth": 1,
                "fillOpacity": 6,
                "gradientMode": "none",
                "showPoints": "never",
                "spanNulls": True,
                "axisPlacement": "auto",
                "axisLabel": "own work since the step began",
            },
        },
        overrides=[
            override("time", unit="s", custom__axisLabel="the newest steps of the time shown"),
            override(
                f"/{slow}/",
                matcher="byRegexp",
                color={"mode": "fixed", "fixedColor": NAMED},
                custom__lineWidth=3,
                custom__fillOpacity=0,
            ),
        ],
    )
