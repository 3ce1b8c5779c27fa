"""From an incident, as the store has it, to what a message tells of it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import msgspec

from paceline.ranks import format_ranks
from paceline_service.export.units import format_gpu_s
from paceline_service.export.words import clean, statement
from paceline_service.incidents.silences import Silence
from paceline_service.notify.message import Facts
from paceline_service.notify.nodes.proposals import is_node_name, proposals
from paceline_service.notify.severity import idle_gpus, severity_of
from paceline_service.notify_settings import NotifySettings

MAX_NODES = 8
MAX_EVIDENCE = 5
MAX_TEXT_CHARS = 400
MAX_RANKS_CHARS = 200
DASHBOARD = "paceline-job"
"""Of Grafana's dashboards the one that shows a job (dashboards/src/paceline_dashboards/job.py)."""
_RUNBOOKS = {
    "straggler": "PacelineStragglerRank",
    "communication": "PacelineCommunicationDegraded",
    "communication_bound": "PacelineCommunicationBound",
    "imbalance": "PacelineImbalance",
    "stage_imbalance": "PacelineImbalance",
    "uniform_slowdown": "PacelineUniformSlowdown",
    "hang": "PacelineHang",
    "desync": "PacelineDesync",
}
"""By kind: the page of docs/runbooks."""
_UNSAFE_COMMAND = (
    "the name of the node is not one that a command should be made of: look at it first"
)
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Where messages lead; empty where it is not known."""

    page: str = ""
    dashboards: str = ""
    runbooks: str = ""

    def page_of(self, incident: int) -> str:
        """Return the address of an incident on the page."""
        return f"{self.page.rstrip('/')}/#/incidents/{incident}" if self.page else ""

    def dashboard_of(self, job: str) -> str:
        """Return the address of the dashboard of a job."""
        if not self.dashboards:
            return ""
        return f"{self.dashboards.rstrip('/')}/d/{DASHBOARD}?{urlencode({'var-job': job})}"

    def runbook_of(self, kind: str) -> str:
        """Return the address of the runbook of a kind of incident."""
        name = _RUNBOOKS.get(kind)
        return f"{self.runbooks.rstrip('/')}/{name}.md" if self.runbooks and name else ""


def links_of(settings: NotifySettings, page_url: str) -> Links:
    """Return where the messages of a collector lead."""
    return Links(
        page=page_url,
        dashboards=settings.notify_dashboard_url,
        runbooks=settings.notify_runbooks_url,
    )


def facts_of(
    row: Json, acknowledgements: Sequence[Json], earlier_incidents: int, links: Links
) -> Facts:
    """Return what a message tells of an incident, but who silenced it.

    Names come from agents, which are trusted no more than their tokens: control characters are
    taken out, and no command is passed on that holds the name of a node that none can have.

    Args:
        row: of the table, with ``job``, ``attempt`` and ``world_size``.
        acknowledgements: of this incident, the newest first.
        earlier_incidents: how many named the same place.
        links: where it is seen.
    """
    finding = json.loads(row["finding"])
    names = [str(node) for node in finding["nodes"] if node]
    nodes = [_text(node) for node in names]
    standing = [one for one in acknowledgements if one["withdrawn_wall_ns"] is None]
    said = standing[0] if standing else {"by": "", "note": ""}
    action = finding["action"]
    if action and not all(is_node_name(name) for name in names):
        action = _UNSAFE_COMMAND
    wasted = finding["wasted_gpu_s"]
    gpus = idle_gpus(finding, row["world_size"])
    return Facts(
        id=row["id"],
        key=f"paceline-{row['id']}-{row['opened_wall_ns']}",
        job=row["job"],
        attempt=row["attempt"],
        kind=finding["kind"],
        cause=finding["cause"],
        severity=severity_of(gpus),
        idle_gpus=gpus,
        headline=_text(statement({**finding, "last_step": None}, {})),
        cost=format_gpu_s(wasted) if wasted is not None else "",
        ranks=_short(format_ranks(finding["ranks"]), MAX_RANKS_CHARS),
        nodes=nodes[:MAX_NODES],
        node_count=len(nodes),
        phase=finding["phase"],
        first_step=finding["first_step"],
        wasted_gpu_s=wasted,
        slowdown=finding["slowdown"],
        recoverable_ratio=finding["recoverable_ratio"],
        confidence=finding["confidence"],
        evidence=[_text(line) for line in finding["evidence"][:MAX_EVIDENCE]],
        action=_text(action) if action else None,
        proposals=proposals(finding, row["id"]),
        earlier_incidents=earlier_incidents,
        opened_wall_ns=row["opened_wall_ns"],
        updated_wall_ns=row["updated_wall_ns"],
        closed_wall_ns=row["closed_wall_ns"],
        closed_reason=row["closed_reason"],
        acknowledged_by=_text(said["by"]),
        acknowledged_note=_text(said["note"]),
        silenced_by="",
        silenced_until_wall_ns=None,
        page_url=links.page_of(row["id"]),
        dashboard_url=links.dashboard_of(row["job"]),
        runbook_url=links.runbook_of(finding["kind"]),
    )


def with_silence(facts: Facts, silence: Silence | None) -> Facts:
    """Return the same with the silence that covers it now; what is over needs none."""
    if silence is None or not facts.open:
        return facts
    return msgspec.structs.replace(
        facts,
        silenced_by=_text(silence.created_by),
        silenced_until_wall_ns=silence.until_wall_ns,
    )


def _text(value: object) -> str:
    return _short(re.sub(r"\s+", " ", clean(value)).strip(), MAX_TEXT_CHARS)


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."
