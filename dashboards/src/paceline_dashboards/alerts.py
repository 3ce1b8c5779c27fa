"""Alerts and recording rules as code: the files of deploy/prometheus/rules (docs/alerts.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paceline_dashboards import alerts_collector, alerts_jobs, alerts_watchdog
from paceline_dashboards.alerts_model import Alert, Group, Options, Rung
from paceline_dashboards.alerts_records import RECORDS
from paceline_dashboards.alerts_words import clean
from paceline_dashboards.alerts_yaml import to_yaml

_HEADING = """{about}
Built by `make dashboards` from dashboards/src/paceline_dashboards/alerts*.py: not edited by hand.
What each alert means, and how limits are changed: docs/alerts.md."""


def groups(options: Options | None = None) -> tuple[Group, ...]:
    """Return the groups of rules; each is a file of its own."""
    options = options or Options()
    return (
        Group(
            name="paceline-records",
            about="Waste in idle GPUs, and what alerts may be about.",
            records=RECORDS,
        ),
        Group(
            name="paceline-jobs",
            about="Alerts about training jobs.",
            alerts=alerts_jobs.alerts(options),
        ),
        Group(
            name="paceline-collector",
            about="Alerts about Paceline itself.",
            alerts=alerts_collector.alerts(),
        ),
        Group(
            name="paceline-watchdog",
            about="The alert that always fires, so that silence is noticed.",
            alerts=alerts_watchdog.alerts(),
        ),
    )


def all_alerts(options: Options | None = None) -> tuple[Alert, ...]:
    """Return every alert."""
    return tuple(alert for group in groups(options) for alert in group.alerts)


def render(options: Options | None = None) -> dict[str, str]:
    """Return file name -> text of the rules."""
    options = options or Options()
    return {
        f"{group.name}.yml": to_yaml(
            {"groups": [{"name": group.name, "rules": list(_rules(group, options))}]},
            _HEADING.format(about=group.about),
        )
        for group in groups(options)
    }


def stale(directory: Path, options: Options | None = None) -> list[str]:
    """Return the names of files in ``directory`` that differ from what would be built."""
    wanted = render(options)
    present = {path.name: path.read_text(encoding="utf-8") for path in directory.glob("*.yml")}
    names = wanted.keys() | present.keys()
    return sorted(name for name in names if wanted.get(name) != present.get(name))


def _rules(group: Group, options: Options) -> list[dict[str, Any]]:
    recorded = [{"record": record.name, "expr": record.expr} for record in group.records]
    alerting = [_rule(alert, rung, options) for alert in group.alerts for rung in alert.rungs]
    return [*recorded, *alerting]


def _rule(alert: Alert, rung: Rung, options: Options) -> dict[str, Any]:
    annotations = {
        "summary": clean(alert.summary),
        "description": f"{clean(alert.description)} Next: {alert.command}",
        "command": alert.command,
        "runbook_url": f"{options.runbooks.rstrip('/')}/{alert.name}.md",
    }
    if alert.of_a_job:
        grafana, page = options.grafana.rstrip("/"), options.page.rstrip("/")
        annotations["dashboard_url"] = f"{grafana}/d/paceline-job?var-job={{{{ $labels.job }}}}"
        annotations["page_url"] = f"{page}/#/jobs/{{{{ $labels.job }}}}"
    return {
        "alert": alert.name,
        "expr": rung.expr,
        "for": rung.hold,
        "labels": {"severity": rung.severity},
        "annotations": annotations,
    }
