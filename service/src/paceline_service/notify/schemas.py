"""The answers about messages as types: they make the OpenAPI document."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from paceline_service.notify_settings import Severity


class ChannelRow(BaseModel):
    """A channel that the collector was given."""

    name: str
    kind: Literal["webhook", "slack", "slack-webhook", "pagerduty", "alertmanager"]
    where: str
    """The receiver without anything secret."""
    min_severity: Severity
    jobs: list[str]
    waiting: int
    """Messages that are on their way."""
    failed: int
    """Incidents whose newest message was given up or refused."""


class ChannelList(BaseModel):
    """Who is told of incidents."""

    channels: list[ChannelRow]


class TestAnswer(BaseModel):
    """What became of a test message."""

    channel: str
    where: str
    delivered: bool
    reason: str
    """Why it was not delivered."""


class MessageRow(BaseModel):
    """What a channel knows of an incident."""

    channel: str
    state: Literal["waiting", "told", "failed", "over"]
    messages: int
    """How many have arrived."""
    told_wall_ns: int | None
    last_error: str | None


class ProposalRow(BaseModel):
    """A command that takes a node out of service, and the one that gives it back."""

    action: str
    node: str
    command: str
    undo: str


class ActionRow(BaseModel):
    """Something that the collector did to a node, or in a dry run would have done."""

    action: str
    node: str
    mode: Literal["dry-run", "execute"]
    state: Literal["begun", "done", "failed", "refused"]
    request: dict[str, object]
    result: str
    begun_wall_ns: int
    ended_wall_ns: int | None


class IncidentNotifications(BaseModel):
    """Who was told of an incident, what could be done, and what was."""

    messages: list[MessageRow]
    proposals: list[ProposalRow]
    actions: list[ActionRow]
