"""The message that ``paceline notify test`` sends: it names no incident."""

from __future__ import annotations

import msgspec

from paceline_service.notify.channels.base import Channel
from paceline_service.notify.facts import Links
from paceline_service.notify.message import Facts, Message
from paceline_service.notify.result import Result


def send_trial(channel: Channel, links: Links, now_wall_ns: int) -> Result:
    """Send the test, and where it would go on to page somebody end it at once; blocks."""
    message = trial_message(links, now_wall_ns)
    result = channel.send(message, "")
    if result.verdict != "delivered" or channel.tells_past:
        return result
    over = msgspec.structs.replace(
        message.incident, closed_wall_ns=now_wall_ns, closed_reason="withdrawn"
    )
    end = msgspec.structs.replace(message, event="resolved", sequence=2, incident=over)
    return channel.send(end, result.thread or "")


def trial_message(links: Links, now_wall_ns: int) -> Message:
    """Return a message that says that it is a test; it is of the least severity."""
    facts = Facts(
        id=0,
        key=f"paceline-test-{now_wall_ns}",
        job="paceline-test",
        attempt=1,
        kind="straggler",
        cause="unknown",
        severity="info",
        headline="This is a test of this channel: there is no incident",
        cost="",
        ranks="",
        nodes=[],
        node_count=0,
        idle_gpus=None,
        phase=None,
        first_step=None,
        wasted_gpu_s=None,
        slowdown=None,
        recoverable_ratio=None,
        confidence=None,
        evidence=["Somebody ran: paceline notify test"],
        action=None,
        proposals=[],
        earlier_incidents=0,
        opened_wall_ns=now_wall_ns,
        updated_wall_ns=now_wall_ns,
        closed_wall_ns=None,
        closed_reason="",
        acknowledged_by="",
        acknowledged_note="",
        silenced_by="",
        silenced_until_wall_ns=None,
        page_url=f"{links.page.rstrip('/')}/" if links.page else "",
        dashboard_url="",
    )
    return Message(event="test", sequence=1, changes=[], incident=facts)
