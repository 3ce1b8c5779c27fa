"""What rules are made of: recording rules, alerts, and how bad an alert is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paceline.metrics import Metric

Severity = Literal["page", "ticket", "info", "none"]
"""``none`` is for what is told to machines only."""

PAGE_GPUS = 8.0
"""GPUs that stand idle, from which somebody is woken: a node of eight, 192 GPU-hours a day."""
TICKET_GPUS = 1.0
"""GPUs that stand idle, from which somebody looks at it by day: 24 GPU-hours a day."""
RATE_WINDOW = "5m"
"""Over which waste is measured. What resets a counter is out of it when a page's `for` is over."""
HOLD_WINDOW = "2m"
"""For so long a finding counts as going on that one scrape or a restart did not show."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A recording rule."""

    name: str
    expr: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One severity of an alert: from when on, and for how long before anybody is told."""

    severity: Severity
    expr: str
    hold: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alert; each rung of it becomes a rule of the same name."""

    name: str
    meaning: str
    """One sentence for docs/alerts.md."""
    rungs: tuple[Rung, ...]
    summary: str
    """One line; like the description a template of Prometheus."""
    description: str
    command: str
    """The next command to run."""
    of_a_job: bool = True
    """Whether the label ``job`` is a training job's, so that its dashboard can be linked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Rules that are evaluated one after the other; also a file."""

    name: str
    about: str
    records: tuple[Record, ...] = ()
    alerts: tuple[Alert, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What differs from one installation to another."""

    page_gpus: float = PAGE_GPUS
    ticket_gpus: float = TICKET_GPUS
    runbooks: str = "docs/runbooks"
    """Where the runbooks are read; NAME.md is put behind it."""
    grafana: str = "http://127.0.0.1:3000"
    page: str = "http://127.0.0.1:8750"
    """The collector as people reach it."""


def by_cost(
    expr: str,
    options: Options,
    *,
    page: str | None = "5m",
    ticket: str = "10m",
    info: str = "5m",
) -> tuple[Rung, ...]:
    """Return a rung for each severity that waste of ``expr`` GPUs has.

    A worse one holds beside the lesser ones, so that no alert ends and begins again when waste
    crosses a limit; Alertmanager shows the worst (deploy/alertmanager).

    Args:
        expr: its value is the number of GPUs that stand idle.
        options: the limits.
        page: how long before a page; None where nothing can be done about it at night.
        ticket: how long before a ticket.
        info: how long before it is mentioned; that wakes nobody, so it may be soon.
    """
    rungs = [
        Rung(severity="ticket", expr=at_least(expr, options.ticket_gpus), hold=ticket),
        Rung(severity="info", expr=expr, hold=info),
    ]
    if page is not None:
        worst = Rung(severity="page", expr=at_least(expr, options.page_gpus), hold=page)
        rungs.insert(0, worst)
    return tuple(rungs)


def at_least(expr: str, limit: float) -> str:
    """Return what of ``expr`` reaches ``limit``."""
    return f"{grouped(expr)} >= {limit:g}"


def grouped(expr: str) -> str:
    """Return ``expr`` in parentheses, further in where it has lines."""
    if "\n" not in expr:
        return f"({expr})"
    inner = "\n".join(f"  {line}" for line in expr.splitlines())
    return f"(\n{inner}\n)"


def lately(metric: Metric, selector: str = "", by: str = "") -> str:
    """Return the newest value of each series of the last minutes, without scrape labels."""
    chosen = f"{{{selector}}}" if selector else ""
    by = by or ", ".join(metric.labels)
    return f"max by ({by}) (last_over_time({metric.name}{chosen}[{HOLD_WINDOW}]))"


def per_second(metric: Metric, labels: str = "") -> str:
    """Return how fast a counter grows, summed over all labels but ``labels``."""
    by = f" by ({labels})" if labels else ""
    return f"sum{by} (rate({metric.name}[{RATE_WINDOW}]))"
