"""Incidents, marked in every chart: from Prometheus, or exactly from the table of incidents."""

from __future__ import annotations

from typing import Any

import paceline_dashboards.queries.sql as statements
from paceline_dashboards.queries import findings
from paceline_dashboards.targets import DATA_SOURCE, SQL_SOURCE

Json = dict[str, Any]
COLOUR = "#ff780a"


def marked(jobs: str, *, sql: bool) -> list[Json]:
    """Return the annotations of the jobs that a matcher selects.

    Args:
        jobs: the matcher of the label ``job``.
        sql: the incidents table is there: it marks, and Prometheus' two can be switched on.
    """
    marks = [
        _prometheus("Named", findings.named(jobs), "rank {{rank}}: {{kind}}", on=not sql),
        _prometheus("Findings", findings.unnamed(jobs), "{{kind}}", on=not sql),
    ]
    return [_incidents(), *marks] if sql else marks


def _prometheus(name: str, expr: str, title: str, *, on: bool) -> Json:
    return {
        "name": name,
        "datasource": DATA_SOURCE,
        "enable": on,
        "hide": False,
        "iconColor": COLOUR,
        "expr": expr,
        "titleFormat": title,
        "textFormat": "job {{job}}, cause {{cause}}",
        "tagKeys": "kind,cause",
        "step": "15s",
        "useValueForTime": False,
        "target": {"expr": expr, "refId": "Anno", "datasource": DATA_SOURCE},
    }


def _incidents() -> Json:
    return {
        "name": "Incidents",
        "datasource": SQL_SOURCE,
        "enable": True,
        "hide": False,
        "iconColor": COLOUR,
        "target": {
            "refId": "Anno",
            "datasource": SQL_SOURCE,
            "editorMode": "code",
            "format": "table",
            "rawQuery": True,
            "rawSql": statements.INCIDENTS,
        },
    }
