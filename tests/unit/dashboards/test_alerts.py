from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline import metrics
from paceline_dashboards import alerts, alerts_collector, build
from paceline_dashboards.alerts_model import Alert, Options
from paceline_dashboards.alerts_yaml import to_yaml

CASES = Path(__file__).parent / "alerts"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
RECORDED = {record.name for group in alerts.groups() for record in group.records}
CATALOGUE = {metric.name for metric in metrics.ALL} | {
    f"{metric.name}_{end}"
    for metric in metrics.ALL
    if metric.kind == "histogram"
    for end in ("bucket", "sum", "count")
}
LABELS = {metric.name: set(metric.labels) for metric in metrics.ALL}
ALERTS = alerts.all_alerts()


def rules(options: Options | None = None) -> list[dict[str, Any]]:
    files = [yaml.safe_load(text) for text in alerts.render(options).values()]
    return [rule for file in files for group in file["groups"] for rule in group["rules"]]


def each_alert() -> list[Any]:
    return [pytest.param(alert, id=alert.name) for alert in ALERTS]


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is missing: apt-get install prometheus")
    return found


def test_committed_rules_are_what_the_code_builds(repository: Path) -> None:
    directory = repository / "deploy/prometheus/rules"
    assert alerts.stale(directory) == [], "run `make dashboards` and commit"


def test_rules_are_built_and_checked_by_the_command_of_the_dashboards(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, into = str(tmp_path / "dist"), tmp_path / "rules"
    assert build.main(["build", out, "--rules", str(into)]) == 0
    assert build.main(["build", out, "--rules", str(into), "--check"]) == 0
    (into / "paceline-jobs.yml").write_text("groups: []\n")
    (into / "left-over.yml").write_text("groups: []\n")
    assert build.main(["build", out, "--rules", str(into), "--check"]) == 1
    told = capsys.readouterr().err
    assert "paceline-jobs.yml" in told
    assert "left-over.yml" in told


def test_limits_and_addresses_are_options_of_the_command(tmp_path: Path) -> None:
    into = tmp_path / "rules"
    options = ["--page-gpus", "64", "--ticket-gpus", "4", "--runbooks", "https://git.example/r/"]
    assert build.main(["build", str(tmp_path), "--rules", str(into), *options]) == 0
    text = (into / "paceline-jobs.yml").read_text()
    assert ">= 64" in text
    assert ">= 4" in text
    assert "https://git.example/r/PacelineHang.md" in text
    with pytest.raises(SystemExit):
        build.main(["build", str(tmp_path), "--rules", str(into), "--page", "{{ x }}"])


def test_every_query_uses_catalogued_metrics_or_recorded_ones() -> None:
    for rule in rules():
        templates = " ".join(rule.get("annotations", {}).values())
        names = re.findall(r"\b(paceline[_:][a-z0-9_:]+)", rule["expr"] + templates)
        assert names or "up{" in rule["expr"] or rule["expr"] == "vector(1)", rule
        unknown = set(names) - CATALOGUE - RECORDED
        assert not unknown, rule.get("alert", rule.get("record"))


def test_every_selection_is_by_labels_that_the_metric_has() -> None:
    for rule in rules():
        for name, selectors in re.findall(r"\b(paceline_[a-z0-9_]+)\{([^}]*)\}", rule["expr"]):
            assert set(re.findall(r"([a-z_]+)(?:=|!)", selectors)) <= LABELS[name], rule["expr"]


def test_the_committed_scrape_has_a_name_by_which_the_collector_is_missed(repository: Path) -> None:
    config = yaml.safe_load((repository / "deploy/prometheus/prometheus.yml").read_text())
    for scrape in config["scrape_configs"]:
        assert re.fullmatch(alerts_collector.SCRAPE_JOBS, scrape["job_name"])
    assert config["rule_files"] == ["rules/*.yml"]
    (manager,) = config["alerting"]["alertmanagers"]
    compose = yaml.safe_load((repository / "docker-compose.yml").read_text())
    assert manager["static_configs"] == [{"targets": ["alertmanager:9093"]}]
    assert "alertmanager" in compose["services"]


def test_recorded_series_are_used_or_meant_for_people() -> None:
    expressions = " ".join(str(rule) for rule in rules())
    for record in (record for group in alerts.groups() for record in group.records):
        used = len(re.findall(rf"{record.name}(?![a-z0-9_:])", expressions)) > 1
        assert used or record.name.startswith(("paceline:fleet", "paceline:job_wasted"))


@pytest.mark.parametrize("alert", each_alert())
def test_every_alert_has_a_runbook_that_tells_what_to_do(alert: Alert, repository: Path) -> None:
    path = repository / f"docs/runbooks/{alert.name}.md"
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    sections = dict(zip(HEADINGS, re.split(r"^## .*$", text, flags=re.MULTILINE)[1:], strict=True))
    for heading, words in sections.items():
        assert len(words.split()) >= 15, f"{heading} says nothing"
        assert not re.search(r"\bTODO\b|\bTBD\b", words)
    for system in ("Slurm", "Kubernetes"):
        assert system in sections["Mitigation"] + sections["Diagnosis"], system
    assert "```" in sections["Diagnosis"] + sections["Mitigation"]


def test_no_runbook_is_of_an_alert_that_is_gone(repository: Path) -> None:
    pages = {path.stem for path in (repository / "docs/runbooks").glob("*.md")} - {"README"}
    assert pages == {alert.name for alert in ALERTS}


def test_every_alert_is_documented_with_its_severities(repository: Path) -> None:
    rows = dict(
        re.findall(
            r"^\| \[`(\w+)`\]\([^)]*\) \| ([^|]*) \|",
            (repository / "docs/alerts.md").read_text(),
            re.M,
        )
    )
    for alert in ALERTS:
        told = [f"{rung.severity} {rung.hold}" for rung in alert.rungs]
        assert rows.get(alert.name) == ", ".join(told)
    assert len(rows) == len(ALERTS)


def test_every_alert_says_reason_cost_and_the_next_command() -> None:
    for rule in (rule for rule in rules() if "alert" in rule):
        told = rule["annotations"]
        for word in ("Reason: ", "Cost: ", "Next: "):
            assert word in told["description"], rule["alert"]
        assert "\n" not in told["summary"]
        assert told["runbook_url"].endswith(f"/{rule['alert']}.md")
        assert rule["labels"]["severity"] in ("page", "ticket", "info", "none")


def test_worse_severities_ask_for_less_patience_or_more_waste() -> None:
    for alert in ALERTS:
        assert len({rung.severity for rung in alert.rungs}) == len(alert.rungs)
        worst = [rung.severity for rung in alert.rungs]
        assert worst == sorted(worst, key=["page", "ticket", "info", "none"].index)


def test_yaml_is_read_back_as_it_was_meant() -> None:
    value = {
        "plain": "a: b # c",
        "quotes": 'it\'s "so" {{ $x }} \\ ',
        "lines": 'x{a="b"}\n  and y > 0\n\nz',
        "list": ["one", {"two": {"three": "3"}, "four": "'"}],
    }
    assert yaml.safe_load(to_yaml(value, "about\nthis")) == value


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    for options in (Options(), Options(page_gpus=1e6, ticket_gpus=0.5)):
        for name, text in alerts.render(options).items():
            (tmp_path / name).write_text(text)
        done = subprocess.run(
            [promtool(), "check", "rules", *map(str, tmp_path.glob("*.yml"))],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in sorted(CASES.glob("*.yml"))])
def test_alerts_fire_on_what_is_wrong_and_on_nothing_else(path: Path) -> None:
    done = subprocess.run([promtool(), "test", "rules", str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_severity_of_every_alert_fires_in_a_case() -> None:
    expected = " ".join(path.read_text() for path in CASES.glob("*.yml"))
    for alert in ALERTS:
        for rung in alert.rungs:
            told = f'alertname="{alert.name}",alertstate="firing",severity="{rung.severity}"'
            if alert.name == "PacelineStragglerRank" and rung.severity == "page":
                told = '{severity="page"}'  # counted by severity there
            assert told in expected, f"{alert.name} {rung.severity}"


def test_healthy_case_has_a_series_of_nearly_every_metric_that_alerts_read() -> None:
    healthy = (CASES / "healthy.yml").read_text()
    given = set(re.findall(r"series: '(paceline_[a-z0-9_]+)", healthy))
    read = {
        name
        for rule in rules()
        for name in re.findall(r"\b(paceline_[a-z0-9_]+)\b", rule["expr"])
        if name in CATALOGUE
    }
    # These have series only while something is wrong, or somebody has silenced it.
    only_then = {name for name in read if re.search("flagged|silenced|_finding|relief", name)}
    assert read - only_then <= given
