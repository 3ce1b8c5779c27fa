"""Alertmanager's API v2: an alert that ends by itself when nobody keeps it open.

The labels are the identity of an alert; routes look at ``severity``, so it is one of them, and
an incident that became worse is a new alert while the one before ends.
"""

from __future__ import annotations

import time
from typing import Any, ClassVar

from paceline_service.notify.channels.base import Audience, Channel
from paceline_service.notify.channels.pagerduty import summary_of
from paceline_service.notify.http import Outgoing
from paceline_service.notify.message import Facts, Message
from paceline_service.notify.result import DELIVERED, Result, result_of
from paceline_service.notify.secret import Secret
from paceline_service.notify_settings import Severity

ALERT = "PacelineIncident"
LASTS_S = 600.0
"""An alert that is not sent again for so long is over: the collector may be gone."""
_PATH = "/api/v2/alerts"


class Alertmanager(Channel):
    """One Alertmanager; of a cluster each is told."""

    kind: ClassVar[str] = "alertmanager"
    tells_past: ClassVar[bool] = False
    refresh_s: ClassVar[float] = 120.0

    def __init__(
        self, name: str, audience: Audience, http: Outgoing, *, url: str, token: Secret
    ) -> None:
        super().__init__(name, audience, http)
        self._url = url.rstrip("/")
        self._token = token

    @property
    def where(self) -> str:
        """The origin of the URL."""
        return self.http.check(self._url + _PATH).origin

    def check(self) -> None:
        """Raise where the URL or the token cannot be used."""
        self.http.check(self._url + _PATH)
        if self._token:
            self._token.first()

    def deliver(self, message: Message, thread: str) -> Result:
        """Post the alert, and the end of the one that had another severity."""
        headers = {"Authorization": f"Bearer {self._token.first()}"} if self._token else {}
        alerts = alerts_of(message, thread, time.time())
        answer = self.post(self._url + _PATH, alerts, headers)
        result = result_of(answer, self.where)
        if result.verdict != "delivered":
            return result
        return Result(verdict=DELIVERED.verdict, thread=message.incident.severity)


def alerts_of(message: Message, severity_before: str, now_s: float) -> list[dict[str, Any]]:
    """Return the alerts that a message makes."""
    facts = message.incident
    ends_s = now_s + LASTS_S if facts.status in ("open", "acknowledged") else now_s
    alerts = [_alert(message, facts.severity, ends_s)]
    if severity_before and severity_before != facts.severity:
        alerts.append(_alert(message, severity_before, now_s))
    return alerts


def _alert(message: Message, severity: Severity | str, ends_s: float) -> dict[str, Any]:
    facts = message.incident
    labels = {
        "alertname": ALERT,
        "job": facts.job,
        "kind": facts.kind,
        "severity": severity,
        "incident": str(facts.id),
        "ranks": facts.ranks,
        "node": facts.nodes[0] if facts.node_count == 1 else "",
    }
    annotations = {
        "summary": summary_of(facts),
        "description": _description(facts),
        "changes": "; ".join(message.changes),
        "cause": facts.cause,
        "cost": facts.cost,
        "nodes": ", ".join(facts.nodes),
        "acknowledged_by": facts.acknowledged_by,
        # Named as the annotations of the rules are, for the same templates.
        "command": facts.action or "",
        "page_url": facts.page_url,
        "dashboard_url": facts.dashboard_url,
        "runbook_url": facts.runbook_url,
    }
    alert = {
        "labels": {name: value for name, value in labels.items() if value},
        "annotations": {name: value for name, value in annotations.items() if value},
        "startsAt": _iso(facts.opened_wall_ns / 1e9),
        "endsAt": _iso(max(ends_s, facts.opened_wall_ns / 1e9)),
    }
    return {**alert, "generatorURL": facts.page_url} if facts.page_url else alert


def _description(facts: Facts) -> str:
    """Return why it is so and what to do next, as the descriptions of the rules end."""
    why = " ".join(f"{line.rstrip('.')}." for line in facts.evidence)
    return f"{why} Next: {facts.action}" if facts.action else why


def _iso(wall_s: float) -> str:
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_s))
    return f"{whole}.{int(wall_s % 1 * 1000):03d}Z"
