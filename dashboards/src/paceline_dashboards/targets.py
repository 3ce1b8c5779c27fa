"""Queries of panels: to Prometheus and to the collector's PostgreSQL."""

from __future__ import annotations

from typing import Any

import attr
from grafanalib.core import Target

Json = dict[str, Any]

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
SQL_SOURCE = {"type": "grafana-postgresql-datasource", "uid": "${sql}"}


@attr.s
class SqlTarget(Target):  # type: ignore[misc]  # grafanalib publishes no types
    """SQL as Grafana's PostgreSQL data source takes it."""

    raw_sql: str = attr.ib(default="")
    format: str = attr.ib(default="table")
    datasource: Json = attr.ib(factory=lambda: dict(SQL_SOURCE))

    def to_json_data(self) -> Json:
        """Return the query as Grafana's JSON."""
        return {
            "refId": self.refId,
            "datasource": self.datasource,
            "editorMode": "code",
            "format": self.format,
            "rawQuery": True,
            "rawSql": self.raw_sql,
        }


@attr.s
class PromTarget(Target):  # type: ignore[misc]  # grafanalib publishes no types
    """PromQL, with examples of what was measured where Prometheus keeps them."""

    exemplars: bool = attr.ib(default=False)

    def to_json_data(self) -> Json:
        """Return the query as Grafana's JSON."""
        told: Json = super().to_json_data()
        return {**told, "exemplar": True} if self.exemplars else told


def query(
    expr: str,
    legend: str = "",
    *,
    instant: bool = False,
    table: bool = False,
    exemplars: bool = False,
) -> Target:
    """Return a Prometheus query; the panel gives it its letter."""
    chosen: Json = {
        "expr": expr,
        "legendFormat": legend or "__auto",
        "instant": instant,
        "format": "table" if table else "time_series",
        "datasource": DATA_SOURCE,
        "exemplars": exemplars,
    }
    return PromTarget(**chosen)


def rows(expr: str) -> Target:
    """Return a Prometheus query of the newest values, one row a series."""
    return query(expr, instant=True, table=True)


def sql(text: str, *, series: bool = False) -> SqlTarget:
    """Return an SQL query: a table, or series from the columns time, metric and value."""
    return SqlTarget(raw_sql=text, format="time_series" if series else "table")


def lettered(targets: list[Target]) -> list[Target]:
    """Return the queries with the letters A, B, C."""
    return [attr.evolve(t, refId=chr(ord("A") + i)) for i, t in enumerate(targets)]


def source_of(targets: list[Target]) -> Json:
    """Return the data source that all of a panel's queries have."""
    (source,) = {tuple(sorted(target.datasource.items())) for target in targets}
    return dict(source)
