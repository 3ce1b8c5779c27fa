from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from paceline_dashboards import build

pytest.importorskip(
    "grafana_foundation_sdk",
    reason="grafana-foundation-sdk is missing; it needs Python 3.11 or newer",
)

from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as grafana

plugins.register_default_plugins()


def dashboards() -> list[Any]:
    return [
        pytest.param(json.loads(text), id=f"{name}-{'sql' if sql else 'prometheus'}")
        for sql in (True, False)
        for name, text in build.render(sql=sql).items()
    ]


def through_grafanas_types(model: Any, value: dict[str, Any]) -> Any:
    return json.loads(json.dumps(model.from_json(copy.deepcopy(value)).to_json(), cls=JSONEncoder))


def what_got_lost(before: Any, after: Any, place: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in before.items():
            if key in after:
                yield from what_got_lost(value, after[key], f"{place}.{key}")
            else:
                yield f"{place}.{key}"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from what_got_lost(one, other, f"{place}[{index}]")
    elif before != after:
        yield f"{place}: {before!r} became {after!r}"


@pytest.mark.parametrize("dashboard", dashboards())
def test_every_panel_survives_grafanas_own_types(dashboard: dict[str, Any]) -> None:
    for panel in dashboard["panels"]:
        model = grafana.RowPanel if panel["type"] == "row" else grafana.Panel
        lost = list(what_got_lost(panel, through_grafanas_types(model, panel)))
        assert not lost, f"{panel['title']}: {lost}"


@pytest.mark.parametrize("dashboard", dashboards())
def test_dashboard_survives_grafanas_own_types(dashboard: dict[str, Any]) -> None:
    bare = {**dashboard, "panels": []}
    assert not list(what_got_lost(bare, through_grafanas_types(grafana.Dashboard, bare)))


@pytest.mark.parametrize("part", ["options", "fieldConfig"])
def test_a_key_that_grafana_does_not_know_is_noticed(part: str) -> None:
    panels = json.loads(build.render()["job.json"])["panels"]
    panel = next(panel for panel in panels if panel["type"] == "heatmap")
    target = panel["options"] if part == "options" else panel["fieldConfig"]["defaults"]["custom"]
    target["keyOfAnotherAge"] = 1
    lost = list(what_got_lost(panel, through_grafanas_types(grafana.Panel, panel)))
    assert any("keyOfAnotherAge" in place for place in lost)
