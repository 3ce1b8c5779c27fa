"""What an incident is next told of, if anything: pure, from what was told to what is so now."""

from __future__ import annotations

from dataclasses import dataclass

from paceline_service.export.units import format_gpu_s
from paceline_service.notify.message import Event, Facts
from paceline_service.notify.severity import SEVERITIES, at_least
from paceline_service.notify_settings import Severity

GROWTH = 2.0
"""A cost is told again when it has doubled: a week of one trouble is a dozen messages at most."""
QUIET_NS = 300 * 10**9
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """When somebody is told."""

    min_severity: Severity
    after_ns: int
    """An incident is told of when it has been open for so long."""
    update_gpu_s: float
    """A cost that doubled is told of if it grew by so much."""
    quiet_ns: int = QUIET_NS
    """What goes to and fro is told of no more often."""


@dataclass(frozen=True, slots=True)
class Due:
    """What has to be told."""

    event: Event
    changes: tuple[str, ...]


def first_due(now: Facts, rules: Rules, now_wall_ns: int) -> Due | None:
    """Return what a channel has to be told that has not been told anything of an incident.

    Nothing where somebody knows of it already, or does not want to, or it is over.
    """
    if now.status != "open" or not at_least(now.severity, rules.min_severity):
        return None
    if now_wall_ns - now.opened_wall_ns < rules.after_ns:
        return None
    return Due("opened", ())


def next_due(told: Facts, now: Facts, rules: Rules, told_ago_ns: int) -> Due | None:
    """Return what a channel has to be told next.

    Args:
        told: what it was told last.
        now: how things are.
        rules: when somebody is told.
        told_ago_ns: how long ago that was.
    """
    calm = told_ago_ns >= rules.quiet_ns
    if not now.open:
        return Due("resolved", (_resolved(now),)) if told.open else None
    if not told.open:
        return Due("opened", ("it has begun again",)) if calm and now.status == "open" else None
    if now.silenced:
        by = f" by {now.silenced_by}" if now.silenced_by else ""
        return None if told.silenced else Due("silenced", (f"silenced{by}",))
    changes = _changes(told, now, rules, calm=calm)
    if told.silenced:
        changes.insert(0, "its silence is over")
    if now.acknowledged_by and now.acknowledged_by != told.acknowledged_by:
        note = f": {now.acknowledged_note}" if now.acknowledged_note else ""
        return Due("acknowledged", (f"acknowledged by {now.acknowledged_by}{note}", *changes))
    if told.acknowledged_by and not now.acknowledged_by:
        changes.insert(0, f"{told.acknowledged_by} no longer says to know of it")
    return Due("updated", tuple(changes)) if changes else None


def _changes(told: Facts, now: Facts, rules: Rules, *, calm: bool) -> list[str]:
    changes = []
    if SEVERITIES.index(now.severity) > SEVERITIES.index(told.severity):
        changes.append(f"now {now.severity}, before {told.severity}")
    if now.cause not in (told.cause, _UNKNOWN) and (calm or told.cause == _UNKNOWN):
        before = "" if told.cause == _UNKNOWN else f", before {told.cause}"
        changes.append(f"its cause is {now.cause}{before}")
    before_s, now_s = told.wasted_gpu_s or 0.0, now.wasted_gpu_s or 0.0
    grew = now_s >= GROWTH * before_s and now_s - before_s >= rules.update_gpu_s
    if grew and not now.acknowledged_by:  # who knows of it need not be told how it goes on
        changes.append(f"it has cost {format_gpu_s(now_s)}, before {format_gpu_s(before_s)}")
    return changes


def _resolved(now: Facts) -> str:
    why = {
        "recovered": "the ranks keep up again",
        "ended": "the job has ended",
        "withdrawn": "with what came later the analysis no longer says so",
    }
    cost = f"; it has cost {now.cost}" if now.cost and now.closed_reason != "withdrawn" else ""
    return f"over: {why.get(now.closed_reason, now.closed_reason)}{cost}"
