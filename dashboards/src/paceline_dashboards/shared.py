"""Panels that several dashboards have, each written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from grafanalib.core import Panel, Target

from paceline_dashboards.charts import MEDIAN, lines
from paceline_dashboards.panels import limits, override, stat, table
from paceline_dashboards.queries import itself, job, steps
from paceline_dashboards.targets import query
from paceline_dashboards.words import GOOD, WARNING

Json = dict[str, Any]

GPU_HOURS = "suffix: GPU-h"
BY_RANK = "rank {{rank}}"


def gamma() -> Panel:
    """Return the figure of exposed communication over compute."""
    return stat(
        "Gamma",
        "Exposed communication over compute. Above 1 the network sets the pace and no node is at "
        "fault; the page tells the break-even.",
        query(job.GAMMA),
        thresholds=limits((None, GOOD), (1, WARNING)),
        decimals=2,
    )


def own_work() -> Panel:
    """Return what each rank works by itself in a step."""
    return lines(
        "Own work in a step",
        "What each rank works by itself in a step, neither waiting nor communicating. A rank above "
        "the dashed line works longer than half of its peers; the slow one is the highest.",
        [query(steps.SELF, BY_RANK), query(steps.SELF_MEDIAN, MEDIAN)],
        unit="s",
    )


def standing() -> Panel:
    """Return how long each rank waits in a step."""
    return lines(
        "Standing at the end of every step",
        "How long each rank waits in a step. Fast ranks rise together; one far below the dashed "
        "line is the one that the others wait for.",
        [query(steps.STANDS, BY_RANK), query(steps.STANDS_MEDIAN, MEDIAN)],
        unit="s",
    )


def ranks_and_cost(
    title: str,
    about: str,
    targets: list[Target],
    *,
    more: Mapping[str, str],
    overrides: Sequence[Json] = (),
) -> Panel:
    """Return a table of ranks, with their node, finding and cost.

    Args:
        title: the panel's title.
        about: what a reader must know.
        targets: the second gives the cost of a rank, the third how often it arrived last.
        more: further columns, field -> heading.
        overrides: settings of columns, by heading.
    """
    return table(
        title,
        about,
        targets,
        columns={
            "rank": "rank",
            "node": "node",
            "kind": "finding",
            "cause": "cause",
            "Value #B": "wasted",
            "Value #C": "arrived last",
            **more,
        },
        sort_by="wasted",
        overrides=[
            override("wasted", unit="s", decimals=1),
            override("arrived last", unit="percentunit", decimals=0),
            *overrides,
        ],
    )


def port_traffic(title: str, expr: str) -> Panel:
    """Return the traffic of InfiniBand ports."""
    return lines(
        title,
        "Bytes a second by port and direction, the sixteen busiest.",
        [query(expr, "{{node}} {{device}} {{direction}}")],
        unit="Bps",
    )


def port_errors(title: str, expr: str) -> Panel:
    """Return the errors of InfiniBand ports."""
    return lines(
        title,
        "In a second, by port and kind: a port with errors is where to look first.",
        [query(expr, "{{node}} {{device}} {{kind}}")],
        unit="short",
        at_least=1,
    )


def dropped(title: str) -> Panel:
    """Return what Paceline could not keep."""
    return lines(
        title,
        "What Paceline could not keep, by stage and reason. Anything here makes verdicts "
        "less sure; they say so.",
        [query(itself.DROPPED, "{{stage}}: {{reason}}")],
        unit="short",
        at_least=1,
    )
