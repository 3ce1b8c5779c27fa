"""Brings grafanalib's JSON to the schema that today's Grafana reads.

grafanalib 0.7.1 writes keys that Grafana dropped years ago, and nulls where a
key should be absent. What is left after ``normalise`` survives a round trip
through Grafana's own types (tests/unit/dashboards).
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SCHEMA_VERSION = 39
"""Grafana 10.2's; newer versions migrate it on load."""

LEGACY_DASHBOARD_KEYS = frozenset(
    {"__inputs", "gnetId", "hideControls", "rows", "sharedCrosshair", "style", "version"}
)
LEGACY_PANEL_KEYS = frozenset(
    {"editable", "error", "height", "hideTimeOverride", "minSpan", "span"}
)
LEGACY_TARGET_KEYS = frozenset({"intervalFactor", "metric", "query", "step", "target"})
LEGACY_VARIABLE_KEYS = frozenset(
    {"auto", "auto_count", "auto_min", "tagValuesQuery", "tagsQuery", "useTags"}
)
ROW_KEYS = frozenset({"collapsed", "gridPos", "id", "panels", "title", "type"})


def normalise(dashboard: Json) -> Json:
    """Return ``dashboard`` without nulls, legacy keys and defaults that mean nothing."""
    result = _drop(dashboard, LEGACY_DASHBOARD_KEYS)
    result["schemaVersion"] = SCHEMA_VERSION
    result["panels"] = [_panel(panel) for panel in dashboard["panels"]]
    result["templating"] = {"list": [_variable(v) for v in dashboard["templating"]["list"]]}
    result["timepicker"] = {"refresh_intervals": dashboard["timepicker"]["refresh_intervals"]}
    cleaned: Json = _without_nulls(result)
    return cleaned


def _panel(panel: Json) -> Json:
    if panel["type"] == "row":
        row = {key: value for key, value in panel.items() if key in ROW_KEYS}
        row["panels"] = [_panel(inner) for inner in panel["panels"]]
        return row
    result = _drop(panel, LEGACY_PANEL_KEYS)
    result["targets"] = [_target(target) for target in panel["targets"]]
    if panel.get("repeat") is None:
        result = _drop(result, frozenset({"repeat", "repeatDirection", "maxPerRow"}))
    legend = result.get("options", {}).get("legend")
    if legend is not None and "show" not in legend:
        shown = legend.get("displayMode") != "hidden"
        legend = {**legend, "showLegend": shown}
        legend["displayMode"] = legend["displayMode"] if shown else "list"
        result["options"] = {**result["options"], "legend": legend}
    _thresholds(result)
    _scale(result)
    return result


def _thresholds(panel: Json) -> None:
    """Drop thresholds without steps, which Grafana cannot draw."""
    defaults = panel["fieldConfig"]["defaults"]
    if not defaults.get("thresholds", {}).get("steps"):
        defaults.pop("thresholds", None)
    panel["fieldConfig"].setdefault("overrides", [])


def _scale(panel: Json) -> None:
    """Drop the base of a logarithm from scales that are linear."""
    scale = panel["fieldConfig"]["defaults"].get("custom", {}).get("scaleDistribution")
    if scale and scale["type"] == "linear":
        scale.pop("log", None)


def _target(target: Json) -> Json:
    if "rawSql" in target:
        return target
    result = _drop(target, LEGACY_TARGET_KEYS)
    if not result.get("interval"):
        result.pop("interval", None)
    result["range"] = not result["instant"]
    result["editorMode"] = "code"
    return result


def _variable(variable: Json) -> Json:
    result = _drop(variable, LEGACY_VARIABLE_KEYS)
    current = {k: v for k, v in result.pop("current").items() if k != "tags" and v is not None}
    if "value" in current:
        result["current"] = current
    return result


def _drop(mapping: Json, keys: frozenset[str]) -> Json:
    return {key: value for key, value in mapping.items() if key not in keys}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _without_nulls(inner)
            for key, inner in value.items()
            # A threshold's first step has the value null: it begins at minus infinity.
            if inner is not None or (key == "value" and "color" in value)
        }
    if isinstance(value, list):
        return [_without_nulls(inner) for inner in value]
    return value
