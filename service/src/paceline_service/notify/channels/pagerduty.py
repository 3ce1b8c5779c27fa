"""PagerDuty's Events API v2: one alert per incident, by its ``dedup_key``."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from paceline_service.notify.channels.base import Audience, Channel
from paceline_service.notify.http import Outgoing
from paceline_service.notify.message import Facts, Message
from paceline_service.notify.result import Result, result_of
from paceline_service.notify.secret import Secret

MAX_SUMMARY_CHARS = 1024
_SEVERITIES = {"page": "critical", "ticket": "warning", "info": "info"}
_ACTIONS = {"acknowledged": "acknowledge", "silenced": "acknowledge", "resolved": "resolve"}
"""What stops the paging without ending the incident is an acknowledgement there."""


class PagerDuty(Channel):
    """One integration of one service."""

    kind: ClassVar[str] = "pagerduty"
    tells_past: ClassVar[bool] = False

    def __init__(
        self, name: str, audience: Audience, http: Outgoing, *, url: str, key: Secret
    ) -> None:
        super().__init__(name, audience, http)
        self._url = url
        self._key = key

    @property
    def where(self) -> str:
        """The origin of the URL."""
        return self.http.check(self._url).origin

    def check(self) -> None:
        """Raise where the URL or the key cannot be used."""
        self.http.check(self._url)
        self._key.first()

    def deliver(self, message: Message, thread: str) -> Result:
        """Send one event."""
        answer = self.post(self._url, event_of(message, self._key.first()))
        return result_of(answer, self.where)


def event_of(message: Message, key: str) -> dict[str, Any]:
    """Return the event of a message; sent again it changes nothing."""
    facts = message.incident
    action = _ACTIONS.get(message.event, "trigger")
    event: dict[str, Any] = {
        "routing_key": key,
        "event_action": action,
        "dedup_key": facts.key,
    }
    if action != "trigger":
        return event
    links = [
        {"href": url, "text": text}
        for url, text in (
            (facts.page_url, "The incident"),
            (facts.dashboard_url, "The dashboard"),
            (facts.runbook_url, "The runbook"),
        )
        if url
    ]
    return event | {
        "client": "Paceline",
        **({"client_url": facts.page_url} if facts.page_url else {}),
        "links": links,
        "payload": {
            "summary": summary_of(facts)[:MAX_SUMMARY_CHARS],
            "source": facts.nodes[0] if facts.nodes else facts.job,
            "severity": _SEVERITIES[facts.severity],
            "timestamp": _iso(facts.opened_wall_ns),
            "component": f"ranks {facts.ranks}" if facts.ranks else "job",
            "group": facts.job,
            "class": facts.kind,
            "custom_details": _details(message),
        },
    }


def summary_of(facts: Facts) -> str:
    """Return the incident in one line."""
    cost = f" - it has cost {facts.cost}" if facts.cost else ""
    return f"{facts.job}: {facts.headline}{cost}"


def _details(message: Message) -> dict[str, Any]:
    facts = message.incident
    details = {
        "message": message.id,
        "changes": message.changes,
        "cause": facts.cause,
        "nodes": facts.nodes,
        "ranks": facts.ranks,
        "wasted_gpu_s": facts.wasted_gpu_s,
        "idle_gpus": facts.idle_gpus,
        "next_command": facts.action,
        "proposals": [one.command for one in facts.proposals],
        "evidence": facts.evidence,
        "earlier_incidents": facts.earlier_incidents,
        "attempt": facts.attempt,
    }
    return {name: value for name, value in details.items() if value not in (None, [], "")}


def _iso(wall_ns: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall_ns / 1e9))
