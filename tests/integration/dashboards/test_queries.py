"""Every query of every panel, asked of a real Prometheus that recorded jobs with faults."""

from __future__ import annotations

import json
import re
from typing import Any

from paceline_dashboards import build
from paceline_dashboards.queries.job import padded
from paceline_dashboards.words import VERDICTS
from tests.integration.dashboards.conftest import Recorded
from tests.integration.dashboards.jobs import SLOW_RANK

NOT_RECORDED = {
    "paceline_bus_": "one collector, without NATS",
    "paceline_access_refused_total": "nobody was refused",
    "paceline_ingest_refused_total": "nobody was refused",
    "paceline_ingest_rejected_total": "no frame was bad",
    "paceline_relief_": "the collector kept up",
    "paceline_rank_gpu_lost": "no GPU was lost",
    "paceline_rank_silenced": "nobody silenced anything",
    "paceline_notifications_total": "no channel was set up",
    "paceline_store_free_bytes": "known of SQLite only",
    "paceline_node_offences": "told a while after the incident",
}
"""Why a metric has no series in the recording."""
SERIES = re.compile(r"\bpaceline_[a-z0-9_]+")
DASHBOARDS = {name: json.loads(text) for name, text in build.render(sql=False).items()}


def targets() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}: {panel['title']}", target)
        for name, dashboard in DASHBOARDS.items()
        for panel in dashboard["panels"]
        for target in panel.get("targets", [])
    ]


def answered(recorded: Recorded, name: str, target: dict[str, Any]) -> list[dict[str, Any]]:
    job = ".*" if name.startswith("fleet") else "moe-16b" if "network" in name else "llm-7b"
    view = recorded.view(job)
    expr = view.promql(target["expr"])
    if target["instant"]:
        return recorded.prometheus.instant(expr, view.to_s)
    return recorded.prometheus.range(expr, view.from_s, view.to_s, view.step_s)


def test_every_query_whose_metrics_were_told_has_an_answer(recorded: Recorded) -> None:
    empty = {}
    for name, target in targets():
        found = answered(recorded, name, target)
        asked = set(SERIES.findall(target["expr"]))
        if not found and asked <= recorded.recording.names:
            empty[name] = target["expr"]
    assert not empty


def test_no_metric_of_a_panel_is_missing_without_a_reason(recorded: Recorded) -> None:
    asked = {name for _, target in targets() for name in SERIES.findall(target["expr"])}
    missing = {
        name
        for name in asked - recorded.recording.names
        if not any(name.startswith(known) for known in NOT_RECORDED)
    }
    assert not missing


def panel_rows(recorded: Recorded, dashboard: str, title: str) -> list[dict[str, Any]]:
    (panel,) = (one for one in DASHBOARDS[dashboard]["panels"] if one["title"] == title)
    return answered(recorded, dashboard, panel["targets"][0])


def test_the_slow_rank_its_node_and_cause_are_in_the_first_table(recorded: Recorded) -> None:
    (row,) = panel_rows(recorded, "job.json", "Named ranks")
    assert row["metric"] == {
        "rank": str(SLOW_RANK), "node": "llm-node-1", "kind": "straggler", "cause": "gpu_throttle",
    }  # fmt: skip


def test_heatmap_is_dark_for_all_ranks_but_the_slow_one(recorded: Recorded) -> None:
    rows = panel_rows(recorded, "job.json", "Idle share, rank by time")
    newest = {row["metric"]["row"].strip(): float(row["values"][-1][1]) for row in rows}
    assert newest.pop(str(SLOW_RANK)) < 0.05
    assert min(newest.values()) > 0.15


def test_rows_of_the_heatmap_are_in_the_order_of_ranks(recorded: Recorded) -> None:
    ranks = [0, 2, 9, 10, 99, 100, 1023, 12345]
    of_all = " or ".join(f'label_replace(vector(1), "rank", "{rank}", "", "")' for rank in ranks)
    began_s = recorded.recording.began_s
    found = recorded.prometheus.range(padded(of_all, "rank"), began_s, began_s, 15)
    assert [int(series["metric"]["row"]) for series in found] == ranks


def test_verdict_is_a_number_that_the_panel_has_a_word_for(recorded: Recorded) -> None:
    (series,) = panel_rows(recorded, "job.json", "Verdict")
    assert VERDICTS[int(series["values"][-1][1])][0] == "straggler"
    told = {VERDICTS[int(value)][0] for _, value in series["values"]}
    assert told == {"insufficient_evidence", "healthy", "straggler"}


def test_marks_begin_when_a_rank_is_named_and_say_who(recorded: Recorded) -> None:
    view = recorded.view("llm-7b")
    for mark in DASHBOARDS["job.json"]["annotations"]["list"]:
        found = recorded.prometheus.range(
            view.promql(mark["expr"]), view.from_s, view.to_s, view.step_s
        )
        if mark["name"] == "Named":
            (series,) = found
            assert series["metric"]["rank"] == str(SLOW_RANK)
            assert series["values"][0][0] > view.from_s + 50
        else:
            assert found == []


def test_variables_have_values(recorded: Recorded) -> None:
    for name, dashboard in DASHBOARDS.items():
        for variable in dashboard["templating"]["list"]:
            found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"])
            if found:
                job = "moe-16b" if "network" in name else "llm-7b"
                view = recorded.view(job)
                selector = view.promql(found[1])
                values = recorded.prometheus.values(found[2], selector, view.from_s, view.to_s)
                assert values, f"{name}: {variable['name']}"
