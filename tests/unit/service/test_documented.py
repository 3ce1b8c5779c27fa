from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from paceline import metrics
from paceline_service.access.connections import HEAD_TOO_LARGE, TOO_MANY
from paceline_service.errors import ServiceError
from paceline_service.settings import CollectorSettings
from tools import metrics_doc


def page(repository: Path, name: str) -> str:
    return (repository / "docs" / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(CollectorSettings.model_fields))
def test_every_setting_of_the_collector_is_documented(repository: Path, name: str) -> None:
    alias = {"state_dir": "PACELINE_STATE_DIR", "token": "PACELINE_TOKEN"}
    variable = alias.get(name, f"PACELINE_SERVE_{name.upper()}")
    assert f"`{variable}`" in page(repository, "configuration.md")


def test_no_documented_setting_of_the_collector_is_unknown(repository: Path) -> None:
    told = set(re.findall(r"`PACELINE_SERVE_([A-Z_]+)`", page(repository, "configuration.md")))
    assert {name.lower() for name in told} <= set(CollectorSettings.model_fields)


@pytest.mark.parametrize("metric", metrics.ALL, ids=lambda metric: metric.name)
def test_every_metric_is_documented_with_its_kind_labels_and_help(
    repository: Path, metric: metrics.Metric
) -> None:
    labels = ", ".join(metric.labels) or "-"
    row = f"| `{metric.name}` | {metric.kind} | {metric.unit or '-'} | {labels} | {metric.help} |"
    assert row in page(repository, "metrics.md")


@pytest.mark.parametrize("error", ServiceError.__subclasses__(), ids=lambda error: error.problem)
def test_every_problem_is_documented(repository: Path, error: type[ServiceError]) -> None:
    assert f"| `{error.problem}` | {error.http_status} |" in page(repository, "api.md")


@pytest.mark.parametrize("told", [TOO_MANY, HEAD_TOO_LARGE], ids=["503", "431"])
def test_what_a_connection_is_told_before_its_request_is_a_problem_too(
    repository: Path, told: bytes
) -> None:
    head, _, body = told.partition(b"\r\n\r\n")
    problem = json.loads(body)
    kind = problem["type"].removeprefix("urn:paceline:problem:")
    assert f"| `{kind}` | {problem['status']} |" in page(repository, "api.md")
    assert head.startswith(f"HTTP/1.1 {problem['status']} {problem['title']}\r\n".encode())
    retry = re.findall(rb"Retry-After: (\d+)", head)
    assert retry == ([b"%d" % problem["retry_after_s"]] if problem["status"] == 503 else [])


@pytest.mark.parametrize("metric", metrics.ALL, ids=lambda metric: metric.name)
def test_metric_names_have_a_base_unit_and_counters_end_in_total(metric: metrics.Metric) -> None:
    assert metric.name.startswith("paceline_")
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    assert not metric.unit or metric.unit in metric.name
    assert not set(re.split("_", metric.name)) & {"ms", "us", "ns", "percent", "milliseconds"}


def test_the_committed_tables_of_metrics_are_what_the_catalogue_gives(repository: Path) -> None:
    assert metrics_doc.page(page(repository, "metrics.md")) == page(repository, "metrics.md"), (
        "run `make metrics-doc` and commit"
    )


def test_a_page_of_metrics_without_its_marks_is_refused(repository: Path) -> None:
    broken = page(repository, "metrics.md").replace(metrics_doc.END, "")
    with pytest.raises(ValueError, match="put it back"):
        metrics_doc.page(broken)
