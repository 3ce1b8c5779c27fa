"""Messages about incidents as types; ``types`` has them too."""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class ChannelRow(TypedDict):
    """A channel that messages go to."""

    name: str
    kind: str
    where: str
    min_severity: str
    jobs: list[str]
    waiting: int
    failed: int


class TestAnswer(TypedDict):
    """What became of a test message."""

    channel: str
    where: str
    delivered: bool
    reason: str


class MessageRow(TypedDict):
    """What a channel knows of an incident."""

    channel: str
    state: Literal["waiting", "told", "failed", "over"]
    messages: int
    told_wall_ns: int | None
    last_error: str | None


class ProposalRow(TypedDict):
    """A command that takes a node out of service, and the one that gives it back."""

    action: str
    node: str
    command: str
    undo: str


class ActionRow(TypedDict):
    """Something that the collector did to a node, or in a dry run would have done."""

    action: str
    node: str
    mode: Literal["dry-run", "execute"]
    state: Literal["begun", "done", "failed", "refused"]
    request: dict[str, Any]
    result: str
    begun_wall_ns: int
    ended_wall_ns: int | None


class IncidentNotifications(TypedDict):
    """Who was told of an incident, what could be done, and what was."""

    messages: list[MessageRow]
    proposals: list[ProposalRow]
    actions: list[ActionRow]
