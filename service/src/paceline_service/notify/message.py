"""What a message says: an incident as it was when the message was made, and what has changed."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline_service.notify_settings import Severity

Event = Literal["opened", "updated", "acknowledged", "silenced", "resolved", "still-open", "test"]
"""What a message is sent for; ``still-open`` only keeps an alert from running out."""
Status = Literal["open", "acknowledged", "silenced", "resolved"]


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """Something that could be done about a node, as a command that a person can run."""

    action: str
    node: str
    command: str
    undo: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as a message tells it; nothing in it is longer than a message can bear.

    Stored messages outlive upgrades: what is added here needs a default.
    """

    id: int
    key: str
    """The same in all messages about it, and another for every incident of every collector."""
    job: str
    attempt: int
    kind: str
    cause: str
    severity: Severity
    headline: str
    cost: str
    """The same as ``wasted_gpu_s`` with its unit; empty where that is not known."""
    ranks: str
    nodes: list[str]
    node_count: int
    idle_gpus: float | None
    """How many GPUs it keeps idle: what the severity goes by."""
    phase: str | None
    first_step: int | None
    wasted_gpu_s: float | None
    slowdown: float | None
    recoverable_ratio: float | None
    confidence: float | None
    evidence: list[str]
    action: str | None
    """The next command."""
    proposals: list[Proposal]
    earlier_incidents: int
    opened_wall_ns: int
    updated_wall_ns: int
    closed_wall_ns: int | None
    closed_reason: str
    acknowledged_by: str
    acknowledged_note: str
    silenced_by: str
    silenced_until_wall_ns: int | None
    page_url: str
    dashboard_url: str
    runbook_url: str = ""

    @property
    def open(self) -> bool:
        """Whether it goes on."""
        return self.closed_wall_ns is None

    @property
    def silenced(self) -> bool:
        """Whether nobody wants to be told of it now."""
        return self.silenced_until_wall_ns is not None

    @property
    def status(self) -> Status:
        """In one word what has become of it."""
        if not self.open:
            return "resolved"
        if self.silenced:
            return "silenced"
        return "acknowledged" if self.acknowledged_by else "open"


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message to one channel."""

    event: Event
    sequence: int
    """Counts the messages about this incident to this channel, from 1."""
    changes: list[str]
    """What is new since the message before, each as a sentence without its stop."""
    incident: Facts

    @property
    def id(self) -> str:
        """The idempotency key: the same whenever this message is sent again."""
        return f"{self.incident.key}-{self.sequence}"


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Message)


def pack(message: Message) -> str:
    """Return it for the outbox."""
    return _ENCODER.encode(message).decode()


def unpack(text: str) -> Message:
    """Return what ``pack`` was given."""
    return _DECODER.decode(text)
