from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from paceline import metrics
from paceline_dashboards import build

SERIES = re.compile(r"\bpaceline_[a-z0-9_]+")
CATALOGUE = {
    metric.name + suffix: set(metric.labels) | ({"le"} if suffix else set())
    for metric in metrics.ALL
    for suffix in (("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",))
}
SELECTION = re.compile(r"\b(paceline_[a-z0-9_]+)(?:\{([^}]*)\})?")
DASHBOARDS = {name: json.loads(text) for name, text in build.render().items()}


def each_panel() -> list[Any]:
    return [
        pytest.param(panel, id=f"{name}:{panel['title']}")
        for name, dashboard in DASHBOARDS.items()
        for panel in dashboard["panels"]
    ]


def test_committed_dashboards_are_what_the_code_builds(repository: Path) -> None:
    assert build.stale(repository / "dashboards/dist") == [], "run `make dashboards` and commit"


def test_building_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    texts = []
    for name in ("one", "two"):
        assert build.main(["build", str(tmp_path / name)]) == 0
        texts.append({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()})
    assert texts[0] == texts[1]


def test_check_writes_nothing_and_fails_on_a_stale_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["build", str(tmp_path)]) == 0
    assert build.main(["build", str(tmp_path), "--check"]) == 0
    (tmp_path / "job.json").write_text("{}\n")
    assert build.main(["build", str(tmp_path), "--check"]) == 1
    assert "job.json" in capsys.readouterr().err
    assert (tmp_path / "job.json").read_text() == "{}\n"


def test_check_notices_a_dashboard_that_nothing_builds(tmp_path: Path) -> None:
    build.main(["build", str(tmp_path)])
    (tmp_path / "left-over.json").write_text("{}")
    assert build.stale(tmp_path) == ["left-over.json"]


@pytest.mark.parametrize("panel", each_panel())
def test_every_query_uses_catalogued_metrics(panel: dict[str, Any]) -> None:
    for target in panel.get("targets", []):
        names = SERIES.findall(target["expr"])
        assert names, target["expr"]
        for name in names:
            assert name in CATALOGUE, target["expr"]


@pytest.mark.parametrize("panel", each_panel())
def test_every_query_selects_and_groups_by_labels_that_its_metrics_have(
    panel: dict[str, Any],
) -> None:
    for target in panel.get("targets", []):
        selections = SELECTION.findall(target["expr"])
        for name, selectors in selections:
            chosen = set(re.findall(r"([a-z_]+)=", selectors))
            assert chosen <= CATALOGUE[name], target["expr"]
        known = set[str]().union(*(CATALOGUE[name] for name, _ in selections))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", target["expr"]):
            assert set(group.split(", ")) <= known, target["expr"]


def test_every_query_is_valid_promql(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    queries = {
        target["expr"].replace("$__rate_interval", "1m")
        for dashboard in DASHBOARDS.values()
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    }
    rules = [{"record": f"query:{n}", "expr": expr} for n, expr in enumerate(sorted(queries))]
    path = tmp_path / "rules.json"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run([promtool, "check", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("dashboard", [*DASHBOARDS.values()], ids=[*DASHBOARDS])
def test_variables_ask_for_catalogued_metrics(dashboard: dict[str, Any]) -> None:
    for variable in dashboard["templating"]["list"]:
        for name in SERIES.findall(variable["query"]):
            assert name in CATALOGUE


@pytest.mark.parametrize("panel", each_panel())
def test_every_panel_says_what_it_shows(panel: dict[str, Any]) -> None:
    if panel["type"] != "row":
        assert panel["title"]
        assert len(panel["description"]) > 20


@pytest.mark.parametrize("panel", each_panel())
def test_every_panel_takes_its_data_from_the_variable(panel: dict[str, Any]) -> None:
    if panel["type"] != "row":
        source = {"type": "prometheus", "uid": "${datasource}"}
        assert panel["datasource"] == source
        assert all(target["datasource"] == source for target in panel["targets"])
        assert "maxDataPoints" not in panel


@pytest.mark.parametrize("dashboard", [*DASHBOARDS.values()], ids=[*DASHBOARDS])
def test_panels_do_not_overlap(dashboard: dict[str, Any]) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("dashboard", [*DASHBOARDS.values()], ids=[*DASHBOARDS])
def test_panel_ids_are_unique(dashboard: dict[str, Any]) -> None:
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
