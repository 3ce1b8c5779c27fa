"""The JSON of every panel, checked by TypeScript against the types of Grafana's own panels."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paceline_dashboards import build

pytestmark = [pytest.mark.pixels, pytest.mark.timeout(600)]
MODULES = {
    "stat": "Stat", "bargauge": "BarGauge", "table": "Table", "heatmap": "Heatmap",
    "state-timeline": "StateTimeline", "barchart": "BarChart", "trend": "Trend",
    "timeseries": "TimeSeries",
}  # fmt: skip
SCHEMA = "@grafana/schema/dist/esm/raw/composable"
WITHOUT_CUSTOM = {"stat", "bargauge"}
# Enums of the schema are written as their texts in JSON.
HEAD = """
type Loose<T> = T extends string ? `${T}` : T extends number | boolean | null | undefined ? T
  : T extends (infer U)[] ? Loose<U>[] : T extends object ? { [K in keyof T]: Loose<T[K]> } : T;
"""


def source_of(panels: list[dict[str, Any]]) -> str:
    """Return TypeScript that compiles if the panels are what Grafana's types say."""
    lines = [HEAD]
    for kind, name in MODULES.items():
        plugin = kind.replace("-", "")
        path = (
            f"@grafana/schema/dist/esm/raw/composable/{plugin}/panelcfg/x/{name}PanelCfg_types.gen"
        )
        lines.append(f'import type * as {name} from "{path}";')
    for panel in panels:
        name = MODULES[panel["type"]]
        options = json.dumps(panel["options"])
        lines.append(f"({options}) satisfies Loose<{name}.Options>; // {panel['title']}")
        if panel["type"] not in WITHOUT_CUSTOM:
            custom = json.dumps(panel["fieldConfig"]["defaults"].get("custom", {}))
            # The state timeline's own module adds it (Connect null values); the schema lags behind.
            more = " & { spanNulls?: boolean }" if name == "StateTimeline" else ""
            lines.append(f"({custom}) satisfies Loose<Partial<{name}.FieldConfig>{more}>;")
    return "\n".join([*lines, "export {};", ""])


def compile_(web: Path, text: str) -> str:
    (web / "check.ts").write_text(text)
    command = [
        *("npm", "exec", "--", "tsc", "--noEmit", "--strict", "--skipLibCheck"),
        *("--module", "esnext", "--moduleResolution", "bundler", "--target", "es2022"),
        "check.ts",
    ]
    done = subprocess.run(command, cwd=web, capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stdout


def test_options_and_settings_of_every_panel_are_those_of_grafanas_types(packages: Path) -> None:
    panels = [
        panel
        for text in build.render().values()
        for panel in json.loads(text)["panels"]
        if panel["type"] != "row"
    ]
    assert compile_(packages, source_of(panels)) == ""


def test_an_option_that_grafana_does_not_know_is_noticed(packages: Path) -> None:
    panels = json.loads(build.render()["job.json"])["panels"]
    panel = next(panel for panel in panels if panel["type"] == "heatmap")
    panel["options"]["keyOfAnotherAge"] = 1
    assert "keyOfAnotherAge" in compile_(packages, source_of([panel]))
