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
DASHBOARDS = {
    f"{kind}/{name}": json.loads(text)
    for kind, sql in (("dist", True), ("dist-prometheus", False))
    for name, text in build.render(sql=sql).items()
}
ROUND_SECONDS = {"$__rate_interval": "1m", "$__range": "30m"}


def each_panel() -> list[Any]:
    return [
        pytest.param(panel, id=f"{name}:{panel['title']}")
        for name, dashboard in DASHBOARDS.items()
        for panel in dashboard["panels"]
    ]


def plain(expr: str) -> str:
    for name, value in ROUND_SECONDS.items():
        expr = expr.replace(name, value)
    return expr


def exprs(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel.get("targets", []) if "expr" in target]


@pytest.mark.parametrize(("kind", "sql"), [("dist", True), ("dist-prometheus", False)])
def test_committed_dashboards_are_what_the_code_builds(
    repository: Path, kind: str, sql: bool
) -> None:
    out_of_date = build.stale(repository / "dashboards" / kind, sql=sql)
    assert out_of_date == [], "run `make dashboards` and commit"


def test_five_dashboards_answer_for_fleet_job_rank_network_and_paceline_itself() -> None:
    uids = {dashboard["uid"] for dashboard in DASHBOARDS.values()}
    names = ("fleet", "job", "rank", "network", "itself")
    assert uids == {f"paceline-{name}" for name in names}


def test_without_postgresql_nothing_asks_for_it() -> None:
    texts = build.render(sql=False).values()
    assert not any("postgresql" in text or "${sql" in text for text in texts)


def test_with_postgresql_the_sawtooth_is_the_first_panel_of_its_section() -> None:
    panels = DASHBOARDS["dist/job.json"]["panels"]
    headings = [place for place, panel in enumerate(panels) if panel["type"] == "row"]
    tooth = panels[headings[1] + 1]
    assert tooth["type"] == "trend"
    assert tooth["datasource"]["uid"] == "${sql}"


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


def test_both_sets_are_built_and_checked_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both = [str(tmp_path / "with"), "--prometheus-only", str(tmp_path / "without")]
    assert build.main(["build", *both]) == 0
    assert build.main(["build", *both, "--check"]) == 0
    (tmp_path / "without" / "rank.json").unlink()
    capsys.readouterr()
    assert build.main(["build", *both, "--check"]) == 1
    assert "rank.json in" in capsys.readouterr().err


def test_address_of_the_page_is_that_of_the_installation(tmp_path: Path) -> None:
    assert build.main(["build", str(tmp_path), "--page", "https://paceline.example/"]) == 0
    for path in tmp_path.iterdir():
        variables = json.loads(path.read_text())["templating"]["list"]
        (page,) = (one["query"] for one in variables if one["name"] == "page")
        assert page == "https://paceline.example"


def test_titles_of_a_dashboard_are_all_different() -> None:
    for dashboard in DASHBOARDS.values():
        titles = [panel["title"] for panel in dashboard["panels"] if panel["type"] != "row"]
        assert len(titles) == len(set(titles))


def test_panels_of_several_dashboards_that_ask_the_same_say_and_look_the_same() -> None:
    seen: dict[tuple[str, ...], dict[str, Any]] = {}
    shared = 0
    for name, dashboard in DASHBOARDS.items():
        for panel in dashboard["panels"]:
            if not exprs(panel):
                continue
            looks = {key: panel[key] for key in ("type", "description", "options", "fieldConfig")}
            before = seen.setdefault((name.split("/")[0], *exprs(panel)), looks)
            assert looks == before, f"{name}: {panel['title']}"
            shared += before is not looks
    assert shared >= 6  # gamma, own work, standing and drops, in both sets


def test_pictures_are_drawn_with_every_setting_that_a_panel_has(repository: Path) -> None:
    # What the drawing page does not register it silently leaves out.
    registered = (repository / "tests/pixels/web/registry.ts").read_text()
    for dashboard in DASHBOARDS.values():
        for panel in dashboard["panels"]:
            config = panel.get("fieldConfig", {"defaults": {}, "overrides": []})
            custom = config["defaults"].get("custom", {})
            names = {key for key, value in custom.items() if value is not None}
            for one in config["overrides"]:
                names |= {entry["id"].removeprefix("custom.") for entry in one["properties"]}
            assert not [name for name in names if f'"{name}"' not in registered], panel["title"]


def test_check_notices_a_dashboard_that_nothing_builds(tmp_path: Path) -> None:
    build.main(["build", str(tmp_path)])
    (tmp_path / "left-over.json").write_text("{}")
    assert build.stale(tmp_path) == ["left-over.json"]


@pytest.mark.parametrize("panel", each_panel())
def test_every_query_uses_catalogued_metrics(panel: dict[str, Any]) -> None:
    for expr in exprs(panel):
        names = SERIES.findall(expr)
        assert names, expr
        for name in names:
            assert name in CATALOGUE, expr


@pytest.mark.parametrize("panel", each_panel())
def test_every_query_selects_and_groups_by_labels_that_its_metrics_have(
    panel: dict[str, Any],
) -> None:
    for expr in exprs(panel):
        selections = SELECTION.findall(expr)
        for name, selectors in selections:
            chosen = set(re.findall(r"([a-z_]+)=", selectors))
            assert chosen <= CATALOGUE[name], expr
        known = {"row"}.union(*(CATALOGUE[name] for name, _ in selections))
        for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expr):
            assert set(group.split(", ")) <= known, expr


def test_every_query_is_valid_promql(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    queries = {
        plain(expr)
        for dashboard in DASHBOARDS.values()
        for panel in dashboard["panels"]
        for expr in exprs(panel)
    }
    queries |= {
        mark["expr"]
        for dashboard in DASHBOARDS.values()
        for mark in dashboard["annotations"]["list"]
        if "expr" in mark
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
        source = panel["datasource"]
        assert source in (
            {"type": "prometheus", "uid": "${datasource}"},
            {"type": "grafana-postgresql-datasource", "uid": "${sql}"},
        )
        assert all(target["datasource"] == source for target in panel["targets"])
        assert "maxDataPoints" not in panel


def links_of(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["url"]] if isinstance(value.get("url"), str) else []
        return own + [url for inner in value.values() for url in links_of(inner)]
    return [url for inner in value for url in links_of(inner)] if isinstance(value, list) else []


@pytest.mark.parametrize("dashboard", [*DASHBOARDS.values()], ids=[*DASHBOARDS])
def test_links_lead_to_dashboards_that_exist_and_name_their_variables(
    dashboard: dict[str, Any],
) -> None:
    variables = {
        one["uid"]: {variable["name"] for variable in one["templating"]["list"]}
        for one in DASHBOARDS.values()
    }
    urls = [url for url in links_of(dashboard) if url]
    assert any(url.startswith("${page}/") for url in urls)
    for url in urls:
        if not url.startswith("${page}/"):
            found = re.match(r"/d/([a-z-]+)\?", url)
            assert found, url
            assert set(re.findall(r"&var-([a-z]+)=", url)) <= variables[found.group(1)], url


@pytest.mark.parametrize("dashboard", [*DASHBOARDS.values()], ids=[*DASHBOARDS])
def test_queries_use_only_variables_that_their_dashboard_has(dashboard: dict[str, Any]) -> None:
    known = {variable["name"] for variable in dashboard["templating"]["list"]}
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            text = target.get("expr") or target["rawSql"]
            used = set(re.findall(r"\$\{?([a-z]+)", text))
            assert used <= known, text


def test_dashboards_of_jobs_mark_incidents() -> None:
    for name, dashboard in DASHBOARDS.items():
        marks = {mark["name"]: mark["enable"] for mark in dashboard["annotations"]["list"]}
        if "itself" in name:
            assert not marks
        elif name.startswith("dist/"):
            assert marks == {"Incidents": True, "Named": False, "Findings": False}
        else:
            assert marks == {"Named": True, "Findings": True}


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
