"""Looks which incidents have news for which channel, and puts messages into the outbox.

What was told is in the database, so that a collector that is restarted tells nothing again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.incidents import repository
from paceline_service.incidents.offences import earlier_incidents
from paceline_service.incidents.silences import SilenceBook
from paceline_service.notify import outbox
from paceline_service.notify.changes import Due, Rules, first_due, next_due
from paceline_service.notify.channels.base import Channel
from paceline_service.notify.facts import Links, facts_of, with_silence
from paceline_service.notify.message import Facts, Message, pack, unpack
from paceline_service.notify.outbox import OVER, WAITING, Row
from paceline_service.store.database import Database

RECENT_NS = 3600 * 10**9
"""An incident that nothing was heard of for so long is not begun to be told of."""
SOON_NS = 5 * 10**9
_log = structlog.get_logger("paceline.notify")
Fence = Callable[[AsyncConnection, set[str]], Awaitable[set[str]]]
"""Returns which of some jobs are not this process's; holds the others for the transaction."""
Owns = Callable[[str], bool]
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """An incident as it was read last: findings are long, and change seldom."""

    mark: object
    finding: Json
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What has to be written about one incident and one channel."""

    facts: Facts
    channel: str
    row: Row | None
    due: Due | None
    """None: nothing follows."""


class Watch:
    """One look after the other; on the event loop.

    Args:
        database: where incidents are and the outbox is.
        book: the silences.
        channels: who is told.
        rules: when; each channel has its own least severity.
        links: what messages lead to.
        owns: whether this process looks after a job, as far as it knows.
        fence: the same for certain, within a transaction; None: it looks after all.
    """

    def __init__(
        self,
        database: Database,
        book: SilenceBook,
        channels: Sequence[Channel],
        rules: Rules,
        links: Links,
        *,
        owns: Owns,
        fence: Fence | None,
    ) -> None:
        self._database = database
        self._book = book
        self._channels = list(channels)
        self._rules = rules
        self._links = links
        self._owns = owns
        self._fence = fence
        self._seen: dict[int, _Seen] = {}
        self._messages: dict[tuple[int, str], tuple[int, int, Message]] = {}

    async def look(self) -> list[Facts]:
        """Look once, and return the incidents that are being told of, as they are now."""
        now_ns = time.time_ns()
        await self._book.refresh()
        async with self._database.read() as connection:
            rows = await outbox.incidents(connection, now_ns - RECENT_NS)
            rows = [row for row in rows if self._owns(row["job"])]
            numbers = [row["id"] for row in rows]
            said = await repository.acknowledgements(connection, numbers) if rows else {}
            earlier = await earlier_incidents(connection, numbers) if rows else {}
            known = {
                (one.incident_id, one.channel): one
                for one in (await outbox.rows_of(connection, numbers) if rows else ())
            }
        self._seen = {
            row["id"]: seen for row in rows if (seen := self._read(row, said, earlier)) is not None
        }
        self._messages = {key: one for key, one in self._messages.items() if key in known}
        found = [self._with_silence(seen) for seen in self._seen.values()]
        plans = [
            plan
            for facts in found
            for channel in self._channels
            if channel.audience.covers(facts.job)
            and (plan := self._plan(facts, channel, known.get((facts.id, channel.name)), now_ns))
        ]
        if plans:
            await self._write(plans, now_ns)
        return found

    def _read(
        self, row: Json, said: Mapping[int, list[Any]], earlier: Mapping[int, int]
    ) -> _Seen | None:
        history = said.get(row["id"], [])
        times = earlier.get(row["id"], 0)
        mark = (row["updated_wall_ns"], row["closed_wall_ns"], times, str(history))
        seen = self._seen.get(row["id"])
        if seen is not None and seen.mark == mark:
            return seen
        try:
            finding = json.loads(row["finding"])
            facts = facts_of(row, history, times, self._links)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            # One that an odd version has written must not keep the others from being told of.
            _log.error("an incident cannot be read", incident=row["id"], error=str(error))
            return None
        return _Seen(mark=mark, finding=finding, facts=facts)

    def _with_silence(self, seen: _Seen) -> Facts:
        return with_silence(seen.facts, self._book.covering(seen.facts.job, seen.finding))

    def _plan(self, now: Facts, channel: Channel, row: Row | None, now_ns: int) -> _Plan | None:
        rules = replace(self._rules, min_severity=channel.audience.min_severity)
        if row is None:
            due = first_due(now, rules, now_ns)
            return _Plan(facts=now, channel=channel.name, row=None, due=due) if due else None
        told = self._message(row)
        plan = _Plan(facts=now, channel=channel.name, row=row, due=None)
        silent_past = row.delivered == 0 and not channel.tells_past
        if row.state == WAITING:
            if row.delivered or row.uncertain or told.event != "opened":
                return None  # what has happened meanwhile is told when it has arrived
            if now.status == "open":
                # Brought up to date shortly before it is tried, and not at every look.
                same = now == told.incident or row.next_wall_ns > now_ns + SOON_NS
                return None if same else replace(plan, due=Due("opened", tuple(told.changes)))
            if now.status == "resolved" and not silent_past:
                return replace(plan, due=next_due(told.incident, now, rules, 0))
            return plan  # nobody was told, and nobody has to be
        ago_ns = now_ns - (row.told_wall_ns or row.made_wall_ns)
        due = next_due(told.incident, now, rules, ago_ns)
        if due is not None and due.event == "resolved" and silent_past:
            return plan
        refresh_ns = int(channel.refresh_s * 1e9)
        alive = now.status in ("open", "acknowledged") and row.state != OVER
        if due is None and refresh_ns and ago_ns >= refresh_ns and alive:
            due = Due("still-open", ())
        return None if due is None else replace(plan, due=due)

    def _message(self, row: Row) -> Message:
        key = (row.incident_id, row.channel)
        known = self._messages.get(key)
        if known is None or known[:2] != (row.sequence, len(row.message)):
            known = (row.sequence, len(row.message), unpack(row.message))
            self._messages[key] = known
        return known[2]

    async def _write(self, plans: list[_Plan], now_ns: int) -> None:
        async with self._database.write() as connection:
            foreign: set[str] = set()
            if self._fence is not None:
                foreign = await self._fence(connection, {plan.facts.job for plan in plans})
            for plan in plans:
                if plan.facts.job not in foreign:
                    await _store(connection, plan, now_ns)


async def _store(connection: AsyncConnection, plan: _Plan, now_ns: int) -> None:
    row, due = plan.row, plan.due
    if due is None:
        assert row is not None
        if row.delivered or row.state != WAITING:
            await outbox.change(connection, row, {"state": OVER})
        else:
            await outbox.forget(connection, row.incident_id, row.channel)
        return
    replaces = row is not None and row.state == WAITING
    sequence = 1 if row is None else row.sequence + (not replaces)
    message = Message(
        event=due.event, sequence=sequence, changes=list(due.changes), incident=plan.facts
    )
    values: dict[str, Any] = {"sequence": sequence, "message": pack(message)}
    if not replaces:
        values |= {
            "state": WAITING,
            "uncertain": False,
            "attempts": 0,
            "made_wall_ns": now_ns,
            "next_wall_ns": now_ns,
        }
    if row is not None:
        await outbox.change(connection, row, values)
        return
    new = {"incident_id": plan.facts.id, "channel": plan.channel, "told_wall_ns": None}
    await outbox.add(connection, {**new, **values})
