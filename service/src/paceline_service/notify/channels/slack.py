"""Slack: with a bot token one message that is edited and followed, else a message per change."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from paceline.errors import ConfigError
from paceline_service.notify.channels.base import Audience, Channel
from paceline_service.notify.channels.slack_blocks import content_of, update_of
from paceline_service.notify.http import Answer, Outgoing
from paceline_service.notify.message import Message
from paceline_service.notify.result import Result, result_of, retry_after_s, said
from paceline_service.notify.secret import Secret

_GONE = frozenset({"message_not_found", "cant_update_message", "edit_window_closed",
                   "thread_not_found"})  # fmt: skip
_AGAIN = frozenset({"ratelimited", "rate_limited", "internal_error", "fatal_error",
                    "service_unavailable", "request_timeout", "team_added_to_org"})  # fmt: skip
_MENDABLE = frozenset({"invalid_auth", "not_authed", "account_inactive", "token_expired",
                       "token_revoked", "missing_scope", "channel_not_found", "not_in_channel",
                       "is_archived"})  # fmt: skip
"""Somebody has to do something in Slack; until then it is tried again."""


class SlackWebhook(Channel):
    """An incoming webhook: it can say something new, and edit nothing."""

    kind: ClassVar[str] = "slack-webhook"

    def __init__(self, name: str, audience: Audience, http: Outgoing, *, url: Secret) -> None:
        super().__init__(name, audience, http)
        self._url = url

    @property
    def where(self) -> str:
        """The origin of the URL; its path is a secret."""
        return self.http.check(self._url.first()).origin

    def check(self) -> None:
        """Raise where the URL cannot be used."""
        self.http.check(self._url.first())

    def deliver(self, message: Message, thread: str) -> Result:
        """Post how the incident is now."""
        content = content_of(message)
        if message.event != "opened" and message.changes:
            content["text"] = update_of(message)["text"]
        return result_of(self.post(self._url.first(), content), self.where)


class SlackBot(Channel):
    """A bot with the scope ``chat:write``; ``thread`` is ``CHANNEL/TIMESTAMP`` of its message."""

    kind: ClassVar[str] = "slack"

    def __init__(
        self, name: str, audience: Audience, http: Outgoing, *, api: str, token: Secret, room: str
    ) -> None:
        super().__init__(name, audience, http)
        self._api = api.rstrip("/")
        self._token = token
        self._room = room

    @property
    def where(self) -> str:
        """The origin of the API, and the channel of Slack."""
        return f"{self.http.check(self._api).origin} {self._room}"

    def check(self) -> None:
        """Raise where the URL, the token or the channel cannot be used."""
        self.http.check(self._api)
        self._token.first()
        if not self._room:
            raise ConfigError(
                f"channel {self.name}: a Slack token without a channel of Slack; give its id, for "
                "example C0123456789, in PACELINE_SERVE_NOTIFY_SLACK_CHANNEL"
            )

    def deliver(self, message: Message, thread: str) -> Result:
        """Post the first message; later edit it, and say below it what has changed."""
        room, _, ts = thread.partition("/")
        if not ts:
            return self._post_new(message)
        edited = self._call("chat.update", {"channel": room, "ts": ts, **content_of(message)})
        if edited.error in _GONE:
            return self._post_new(message)
        if not edited.ok or not message.changes:
            return edited.result(self.where, "")
        reply = {
            "channel": room,
            "thread_ts": ts,
            # What ends it, or makes it worse, is for those who do not follow the thread too.
            "reply_broadcast": message.event in ("opened", "resolved"),
            **update_of(message),
        }
        return self._call("chat.postMessage", reply).result(self.where, thread)

    def _post_new(self, message: Message) -> Result:
        metadata = {"event_type": "paceline_incident", "event_payload": {"id": message.id}}
        content = {"channel": self._room, "metadata": metadata, **content_of(message)}
        told = self._call("chat.postMessage", content)
        return told.result(self.where, f"{told.channel}/{told.ts}" if told.ok else "")

    def _call(self, method: str, content: dict[str, Any]) -> _Told:
        answer = self.post(
            f"{self._api}/{method}",
            content,
            {
                "Authorization": f"Bearer {self._token.first()}",
                "Content-Type": "application/json; charset=utf-8",
            },
        )
        return _Told(answer)


class _Told:
    """What Slack says: most errors come with status 200."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        try:
            content = json.loads(answer.body)
        except (ValueError, RecursionError):
            content = None
        self._content: dict[str, Any] = content if isinstance(content, dict) else {}
        self.ok = answer.status == 200 and self._content.get("ok") is True
        self.error = str(self._content.get("error", ""))[:80] if not self.ok else ""
        self.channel = str(self._content.get("channel", ""))[:100]
        self.ts = str(self._content.get("ts", ""))[:100]

    def result(self, where: str, thread: str) -> Result:
        """Return what it means for the message."""
        if self.ok:
            return Result(verdict="delivered", thread=thread or None)
        if self._answer.status != 200 or not self.error:
            found = result_of(self._answer, where)
            if found.verdict != "delivered":
                return found
            reason = f"{where} answers what is not Slack's: {said(self._answer)}"
            return Result(verdict="refused", reason=reason)
        reason = f"{where} says {self.error}"
        if self.error in _AGAIN or self.error in _MENDABLE:
            return Result(
                verdict="again", reason=reason, after_s=retry_after_s(self._answer),
                uncertain=self.error in ("internal_error", "fatal_error", "request_timeout"),
            )  # fmt: skip
        return Result(verdict="refused", reason=reason)
