from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline import metrics

SERIES = re.compile(r"\bpaceline_[a-z0-9_]+")
NOT_USED: dict[str, str] = {}
"""Metrics that no dashboard, alert or recording rule asks for, and why there are such."""


@pytest.fixture(scope="module")
def asked(repository: Path) -> set[str]:
    """Every name in the committed dashboards and rules."""
    files = [
        *(repository / "dashboards/dist").rglob("*.json"),
        *(repository / "deploy/prometheus").rglob("*.yml"),
    ]
    assert len(files) > 2
    return {name for path in files for name in SERIES.findall(path.read_text(encoding="utf-8"))}


@pytest.mark.parametrize("metric", metrics.ALL, ids=lambda metric: metric.name)
def test_every_metric_is_used_by_a_dashboard_or_a_rule_or_listed_with_a_reason(
    asked: set[str], metric: metrics.Metric
) -> None:
    suffixes = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
    used = any(metric.name + suffix in asked for suffix in suffixes)
    assert used != (metric.name in NOT_USED)
