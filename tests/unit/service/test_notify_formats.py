"""The formats of receivers, and names that mean harm in them."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import msgspec
import pytest

from paceline_service.notify.channels.alertmanager import LASTS_S, alerts_of
from paceline_service.notify.channels.pagerduty import event_of
from paceline_service.notify.channels.slack_blocks import content_of, update_of
from paceline_service.notify.channels.webhook import body_of
from paceline_service.notify.facts import Links, facts_of
from paceline_service.notify.message import Event, Message
from paceline_service.notify.nodes.proposals import is_kubernetes_name, is_node_name, proposals
from paceline_service.notify.signing import WINDOW_S, sign, signature_header, verify
from paceline_service.report_schema import EXAMPLE

HOSTILE = (
    "a; curl evil|sh", "$(reboot)", "`id`", "node\nname", "node\x1b[2Jx", "-rf", "ALL", "all",
    "a[1-99]", "a,b", "../x", "n\u202ede", "<!channel>", "<https://evil|click>", "a b", "",
    "x" * 300,
    "*bold* _it_", "&lt;", '"},"x":{"', "None", "default",
)  # fmt: skip
PAGERDUTY = {
    "type": "object",
    "required": ["routing_key", "event_action", "dedup_key"],
    "additionalProperties": False,
    "properties": {
        "routing_key": {"type": "string"},
        "event_action": {"enum": ["trigger", "acknowledge", "resolve"]},
        "dedup_key": {"type": "string", "maxLength": 255},
        "client": {"type": "string"},
        "client_url": {"type": "string", "format": "uri"},
        "links": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["href"],
                "properties": {"href": {"format": "uri"}, "text": {"type": "string"}},
            },
        },
        "payload": {
            "type": "object",
            "required": ["summary", "source", "severity"],
            "additionalProperties": False,
            "properties": {
                "summary": {"type": "string", "maxLength": 1024, "minLength": 1},
                "source": {"type": "string", "minLength": 1},
                "severity": {"enum": ["critical", "warning", "error", "info"]},
                "timestamp": {"type": "string", "format": "date-time"},
                "component": {"type": "string"},
                "group": {"type": "string"},
                "class": {"type": "string"},
                "custom_details": {"type": "object"},
            },
        },
    },
    "if": {"properties": {"event_action": {"const": "trigger"}}},
    "then": {"required": ["payload"]},
}
"""Events API v2 as PagerDuty documents it."""
_TEXT = {
    "type": "object",
    "required": ["type", "text"],
    "properties": {
        "type": {"enum": ["plain_text", "mrkdwn"]},
        "text": {"type": "string", "minLength": 1, "maxLength": 3000},
    },
}
SLACK = {
    "type": "object",
    "required": ["text", "blocks"],
    "properties": {
        "text": {"type": "string", "minLength": 1, "maxLength": 40_000},
        "blocks": {
            "type": "array",
            "maxItems": 50,
            "items": {
                "oneOf": [
                    {
                        "properties": {
                            "type": {"const": "header"},
                            "text": {
                                "properties": {
                                    "type": {"const": "plain_text"},
                                    "text": {"maxLength": 150, "minLength": 1},
                                }
                            },
                        },
                        "required": ["type", "text"],
                    },
                    {
                        "properties": {
                            "type": {"const": "section"},
                            "text": _TEXT,
                            "fields": {"type": "array", "maxItems": 10, "items": _TEXT},
                        },
                        "required": ["type"],
                        "anyOf": [{"required": ["text"]}, {"required": ["fields"]}],
                    },
                    {
                        "properties": {
                            "type": {"const": "context"},
                            "elements": {"type": "array", "maxItems": 10, "items": _TEXT},
                        },
                        "required": ["type", "elements"],
                    },
                ]
            },
        },
    },
}
"""Block Kit, as far as it is used, with its limits."""


def message(event: Event = "opened", nodes: list[str] | None = None, **changes: Any) -> Message:
    named = nodes if nodes is not None else ["node-a"]
    finding = {
        **EXAMPLE,
        "nodes": named,
        "action": f"scontrol update nodename={','.join(named)} state=drain reason=paceline",
        "evidence": [f"{node} is slow" for node in named],
    }
    row = {
        "id": 17, "job": "llm", "attempt": 2, "world_size": 128, "finding": json.dumps(finding),
        "opened_wall_ns": 10**18, "updated_wall_ns": 10**18, "closed_wall_ns": None,
        "closed_reason": "",
    }  # fmt: skip
    told = facts_of(row, [], 0, Links(page="https://paceline.example", dashboards=""))
    told = msgspec.structs.replace(told, **changes)
    return Message(event=event, sequence=1, changes=["something"], incident=told)


EVENTS: list[Message] = [
    message(),
    message("updated"),
    message("acknowledged", acknowledged_by="ana"),
    message("silenced", silenced_until_wall_ns=2 * 10**18, silenced_by="ben"),
    message("resolved", closed_wall_ns=10**18, closed_reason="recovered"),
    *(message(nodes=[name]) for name in HOSTILE),
    message(nodes=[f"node-{n}" for n in range(500)]),
    message(headline="x" * 400, evidence=["y" * 400] * 5, acknowledged_note="z" * 400),
]


@pytest.mark.parametrize("one", EVENTS)
def test_events_of_pagerduty_are_as_it_documents_them(one: Message) -> None:
    event = json.loads(msgspec.json.encode(event_of(one, "key")))
    jsonschema_rs.validator_for(PAGERDUTY, validate_formats=True).validate(event)


def test_one_incident_is_one_alert_of_pagerduty_from_trigger_to_resolve() -> None:
    events = [event_of(one, "key") for one in EVENTS[:5]]
    assert [one["event_action"] for one in events] == [
        "trigger", "trigger", "acknowledge", "acknowledge", "resolve"
    ]  # fmt: skip
    assert len({one["dedup_key"] for one in events}) == 1
    assert events[0]["payload"]["severity"] == "critical"
    assert events[0]["payload"]["custom_details"]["next_command"].startswith("scontrol")


@pytest.mark.parametrize("one", EVENTS)
def test_messages_to_slack_are_within_its_limits(one: Message) -> None:
    content = json.loads(msgspec.json.encode(content_of(one)))
    jsonschema_rs.validator_for(SLACK).validate(content)
    assert update_of(one)["text"]


@pytest.mark.parametrize("name", ["<!channel>", "<https://evil|click>", "<@U123>", "a&b", "`x`"])
def test_a_name_is_no_mention_link_or_markup_in_slack(name: str) -> None:
    content = content_of(message(nodes=[name], acknowledged_by=name))
    marked = [content["text"]]
    for block in content["blocks"]:
        texts = [block.get("text"), *block.get("fields", ()), *block.get("elements", ())]
        marked += [one["text"] for one in texts if one and one["type"] == "mrkdwn"]
    for text in marked:
        rest = text.replace("<https://paceline.example/#/incidents/17|", "")
        assert "<" not in rest
    assert content["mrkdwn"] is False


@pytest.mark.parametrize("name", HOSTILE)
def test_no_command_is_made_of_a_name_that_no_node_has(name: str) -> None:
    assert not is_node_name(name)
    assert not is_kubernetes_name(name)
    finding = {**EXAMPLE, "nodes": [name]}
    assert proposals(finding, 17) == []
    told = message(nodes=[name]).incident
    if name:
        assert told.action is not None
        assert name not in told.action
    assert all(char.isprintable() for one in (*told.nodes, told.headline) for char in one)


@pytest.mark.parametrize("name", ["node-a", "gpu07.rack3.example", "n1", "10-0-0-7"])
def test_commands_are_proposed_for_names_that_nodes_have(name: str) -> None:
    commands = [one.command for one in proposals({**EXAMPLE, "nodes": [name]}, 17)]
    assert commands == [
        f"scontrol update nodename={name} state=drain reason=paceline-incident-17-gpu-throttle",
        f"kubectl taint nodes {name} paceline.dev/straggler=gpu_throttle:NoSchedule",
    ]


@pytest.mark.parametrize("cause", ["input", "gc"])
def test_a_node_is_not_proposed_to_be_drained_for_what_another_would_not_change(cause: str) -> None:
    assert proposals({**EXAMPLE, "cause": cause}, 17) == []


def test_an_alert_runs_out_by_itself_and_ends_when_the_incident_does() -> None:
    now_s = 2 * 10**9
    (alert,) = alerts_of(message(), "", now_s)
    assert alert["endsAt"] > "2033-05-18T03:33:20.000Z"
    assert LASTS_S > 120, "an alert must outlast a refresh that is missed"
    for over in (EVENTS[3], EVENTS[4]):
        (alert,) = alerts_of(over, "page", now_s)
        assert alert["endsAt"] == "2033-05-18T03:33:20.000Z"
    assert alert["labels"]["severity"] == "page"


def test_an_alert_that_became_worse_replaces_the_one_before() -> None:
    alerts = alerts_of(message(), "ticket", 2 * 10**9)
    assert [one["labels"]["severity"] for one in alerts] == ["page", "ticket"]
    assert alerts[1]["endsAt"] == "2033-05-18T03:33:20.000Z"


def test_a_signature_holds_for_its_body_time_and_secret_alone() -> None:
    body, secret, now_s = body_of(message()), "s" * 32, 1_790_000_000
    header = signature_header(["old" * 8, secret], now_s, body)
    given = {"timestamp": str(now_s), "signature": header, "body": body, "now_s": now_s}
    assert verify(secret, **given)
    assert verify("old" * 8, **given), "a secret can be changed while both are used"
    assert not verify("other" * 8, **given)
    assert not verify(secret, **{**given, "body": body + b" "})
    assert not verify(secret, **{**given, "timestamp": str(now_s + 1)})
    assert verify(secret, **{**given, "now_s": now_s + WINDOW_S})
    assert not verify(secret, **{**given, "now_s": now_s + WINDOW_S + 1}), "sent again later"
    assert not verify(secret, **{**given, "now_s": now_s - WINDOW_S - 1})
    for signature in ("", "v1=", sign(secret, now_s, body)[3:], "v1=ä", ",,,,"):
        assert not verify(secret, **{**given, "signature": signature})
    for timestamp in ("", "-1", "1e9", "٣", "9" * 30):
        assert not verify(secret, **{**given, "timestamp": timestamp})


def test_the_body_of_a_webhook_is_the_same_whenever_it_is_sent() -> None:
    assert body_of(message()) == body_of(message())
    told = json.loads(body_of(message()))
    assert told["schema"] == "paceline.message/1"
    assert told["id"] == "paceline-17-1000000000000000000-1"
