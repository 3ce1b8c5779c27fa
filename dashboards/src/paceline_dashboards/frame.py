"""What all dashboards share: variables, links between them and to the page, annotations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grafanalib.core import Annotations, Dashboard, DashboardLink, Template, Templating, Time

from paceline_dashboards import incidents, layout
from paceline_dashboards.queries import variables
from paceline_dashboards.targets import DATA_SOURCE

Json = dict[str, Any]

PAGE = "http://127.0.0.1:8750"
"""Where the collector's page is; a text box on every dashboard."""
TAG = "paceline"
FLEET, JOB, RANK, NETWORK, ITSELF = (
    "paceline-fleet", "paceline-job", "paceline-rank", "paceline-network", "paceline-itself",
)  # fmt: skip
"""Uids: links and bookmarks hold them."""
BY_NUMBER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where dashboards find what they show."""

    sql: bool = True
    """The collector's PostgreSQL, beside Prometheus."""
    page: str = PAGE
    """The collector as people reach it."""


def _variables(sources: Sources) -> list[Template]:
    chosen = [
        Template(name="datasource", label="Prometheus", type="datasource", query="prometheus")
    ]
    if sources.sql:
        kind = "grafana-postgresql-datasource"
        chosen.append(Template(name="sql", label="PostgreSQL", type="datasource", query=kind))
    page = sources.page.rstrip("/")
    return [
        *chosen,
        Template(name="page", label="Page", type="textbox", query=page, default=page),
    ]


def job(*, many: bool = False) -> Template:
    """Return the variable that chooses a job, or several."""
    several: Json = {"includeAll": True, "multi": True, "allValue": ".*", "default": "$__all"}
    return Template(
        name="job",
        label="Job",
        query=variables.JOBS,
        dataSource=DATA_SOURCE,
        refresh=2,  # with the time range, too: jobs come and go
        **(several if many else {}),
    )


def several(
    name: str, label: str, query: str, *, of_all: bool, by_number: bool = False
) -> Template:
    """Return a variable of several values.

    Args:
        name: of the variable.
        label: beside it.
        query: what asks for its values.
        of_all: "All" means whatever there is; otherwise it means the values that it lists.
        by_number: its values are numbers.
    """
    return Template(
        name=name,
        label=label,
        query=query,
        dataSource=DATA_SOURCE,
        includeAll=True,
        multi=True,
        allValue=".*" if of_all else None,
        default="$__all",
        refresh=2,
        **({"sort": BY_NUMBER} if by_number else {}),
    )


def span(name: str, label: str, choices: tuple[str, ...]) -> Template:
    """Return a variable that chooses a span of time; the first is chosen at first."""
    return Template(
        name=name, label=label, type="custom", query=",".join(choices), default=choices[0]
    )


def to_dashboard(uid: str, **values: str) -> str:
    """Return the address of another dashboard with the same sources and times."""
    chosen = "".join(f"&var-{name}={value}" for name, value in values.items())
    return f"/d/{uid}?${{datasource:queryparam}}&${{page:queryparam}}&${{__url_time_range}}{chosen}"


def _links(page_path: str) -> list[DashboardLink]:
    return [
        DashboardLink(
            title="Paceline", type="dashboards", tags=[TAG], includeVars=True, keepTime=True
        ),
        DashboardLink(
            title="Page",
            type="link",
            uri="${page}/" + page_path,
            targetBlank=True,
            keepTime=False,
            tooltip="The collector's own page: verdict, evidence, steps one by one.",
        ),
    ]


def dashboard(
    uid: str,
    title: str,
    about: str,
    templates: Iterable[Template],
    sections: Sequence[layout.Section],
    *,
    sources: Sources,
    page_path: str = "",
    incidents_of: str = "",
) -> Dashboard:
    """Return a dashboard.

    Args:
        uid: its name in addresses.
        title: as listed.
        about: what it answers.
        templates: its variables beside those that choose sources.
        sections: what it shows.
        sources: where it finds them.
        page_path: what the link to the page goes to.
        incidents_of: the matcher of the jobs whose incidents are marked; empty: none are.
    """
    marks = incidents.marked(incidents_of, sql=sources.sql) if incidents_of else []
    return Dashboard(
        title=title,
        uid=uid,
        description=about,
        tags=[TAG],
        timezone="browser",
        refresh="10s",
        time=Time("now-30m", "now"),
        graphTooltip=1,  # one crosshair over all panels
        editable=False,
        templating=Templating(list=[*_variables(sources), *templates]),
        annotations=Annotations(list=marks),
        links=_links(page_path),
        panels=layout.arranged(sections),
    )
