"""A message in Slack's Block Kit: what a name holds is text, never markup or a mention."""

from __future__ import annotations

from typing import Any

from paceline_service.notify.message import Facts, Message

MAX_SECTION_CHARS = 2900
"""Slack takes 3,000."""
MAX_HEADER_CHARS = 150
_WORDS = {
    "open": "Open", "acknowledged": "Acknowledged", "silenced": "Silenced", "resolved": "Resolved",
}  # fmt: skip
_QUIET = {"unfurl_links": False, "unfurl_media": False, "mrkdwn": False}
Json = dict[str, Any]


def content_of(message: Message) -> Json:
    """Return ``text`` and ``blocks`` of the message that shows how an incident is now."""
    facts = message.incident
    word = _WORDS[facts.status]
    title = f"{word} ({facts.severity}): {facts.job}"
    blocks = [
        {"type": "header", "text": _plain(title[:MAX_HEADER_CHARS])},
        _said(facts.headline),
        {"type": "section", "fields": _fields(facts)},
    ]
    if facts.evidence:
        blocks.append(_said("\n".join(f"- {line}" for line in facts.evidence)))
    if facts.action and facts.open:
        code = f"Next command:\n```{_code(facts.action)}```"
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": code}})
    if state := _state(message):
        blocks.append(_said(state))
    links = [
        f"<{url}|{text}>"
        for url, text in (
            (facts.page_url, "Open the incident"),
            (facts.dashboard_url, "Dashboard"),
            (facts.runbook_url, "Runbook"),
        )
        if url
    ]
    foot = " | ".join([*links, f"incident {facts.id}, attempt {facts.attempt}"])
    blocks.append({"type": "context", "elements": [{"type": "mrkdwn", "text": foot}]})
    text = f"{word} ({facts.severity}): {facts.job}: {facts.headline}"
    return {"text": escape(text), "blocks": blocks, **_QUIET}


def update_of(message: Message) -> Json:
    """Return the short message that says what has changed."""
    facts = message.incident
    what = "; ".join(message.changes) or _WORDS[facts.status].lower()
    text = f"Incident {facts.id} of {facts.job}: {what}"
    return {"text": escape(text[:MAX_SECTION_CHARS]), **_QUIET}


def escape(text: str) -> str:
    """Return text in which Slack sees no link or mention; it reads no other markup either."""
    for char, told in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        text = text.replace(char, told)
    return text


def _code(text: str) -> str:
    for char, told in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("`", "'")):
        text = text.replace(char, told)
    return text


def _fields(facts: Facts) -> list[Json]:
    more = facts.node_count - len(facts.nodes)
    nodes = ", ".join(facts.nodes) + (f" and {more} more" if more else "")
    gain = facts.recoverable_ratio
    pairs = (
        ("Job", facts.job),
        ("Node", nodes or "unknown"),
        ("Ranks", facts.ranks or "no rank in particular"),
        ("Cause", facts.cause.replace("_", " ")),
        ("Cost so far" if facts.open else "Cost", facts.cost or "unknown"),
        ("Without it", f"{gain * 100:.0f} % less time a step" if gain else "unknown"),
    )
    fields = [_plain(f"{name}: {value}") for name, value in pairs]
    if facts.earlier_incidents:
        times = f"{facts.earlier_incidents} earlier incidents named this place in 30 days"
        fields.append(_plain(f"Seen before: {times}"))
    return fields


def _state(message: Message) -> str:
    facts = message.incident
    if facts.status == "acknowledged":
        note = f": {facts.acknowledged_note}" if facts.acknowledged_note else ""
        return f"Acknowledged by {facts.acknowledged_by}{note}"
    if facts.status == "silenced":
        return f"Silenced by {facts.silenced_by}"
    if facts.status == "resolved":
        return "; ".join(message.changes) or "It is over"
    return ""


def _said(text: str) -> Json:
    return {"type": "section", "text": _plain(text[:MAX_SECTION_CHARS])}


def _plain(text: str) -> Json:
    return {"type": "plain_text", "text": text, "emoji": False}
