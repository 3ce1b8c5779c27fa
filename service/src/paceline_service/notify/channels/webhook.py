"""Signed webhooks: the message as JSON (docs/messages.md)."""

from __future__ import annotations

import time
from typing import ClassVar

import msgspec

from paceline.errors import ConfigError
from paceline_service.notify.channels.base import Audience, Channel
from paceline_service.notify.http import Outgoing
from paceline_service.notify.message import Message
from paceline_service.notify.result import Result, result_of
from paceline_service.notify.secret import Secret
from paceline_service.notify.signing import MESSAGE_ID, SIGNATURE, TIMESTAMP, signature_header

SCHEMA = "paceline.message/1"
MIN_SECRET_CHARS = 16


class Webhook(Channel):
    """One URL that takes JSON."""

    kind: ClassVar[str] = "webhook"

    def __init__(
        self, name: str, audience: Audience, http: Outgoing, *, url: Secret, secret: Secret
    ) -> None:
        super().__init__(name, audience, http)
        self._url = url
        self._secret = secret

    @property
    def where(self) -> str:
        """The origin of the URL."""
        return self.http.check(self._url.first()).origin

    def check(self) -> None:
        """Raise where the URL or the secret cannot be used."""
        self.http.check(self._url.first())
        self._secrets()

    def deliver(self, message: Message, thread: str) -> Result:
        """Post the message, signed with the time of this attempt."""
        now_s = int(time.time())
        body = body_of(message)
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": message.id,
            MESSAGE_ID: message.id,
            TIMESTAMP: str(now_s),
            SIGNATURE: signature_header(self._secrets(), now_s, body),
        }
        answer = self.http.send("POST", self._url.first(), body, headers)
        return result_of(answer, self.where)

    def _secrets(self) -> list[str]:
        secrets = self._secret.lines()
        shortest = min(len(one) for one in secrets)
        if shortest < MIN_SECRET_CHARS:
            raise ConfigError(
                f"channel {self.name}: a secret of {shortest} characters; webhooks are signed with "
                f"{MIN_SECRET_CHARS} or more: openssl rand -hex 32 makes one"
            )
        return secrets


def body_of(message: Message) -> bytes:
    """Return the body: the same bytes for the same message."""
    told = {
        "schema": SCHEMA,
        "id": message.id,
        "event": message.event,
        "sequence": message.sequence,
        "status": message.incident.status,
        "changes": message.changes,
        "incident": message.incident,
    }
    return msgspec.json.encode(told)
