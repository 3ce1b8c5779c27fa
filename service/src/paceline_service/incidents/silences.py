"""Silences: what nobody wants to be told of for a while. They hide from alerts, never from reports.

A silence names a job, a kind, ranks and a node; what it leaves out it does not ask about. It
covers a finding when everything that the finding accuses lies within it.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.ranks import parse_ranks
from paceline_service.store.database import Database
from paceline_service.store.models import SilenceRow

REFRESH_S = 10.0
"""What another process of the collector has silenced is known here after this long."""
MAX_ACTIVE = 1000
Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """One silence; an empty field covers everything."""

    id: int
    job: str
    kind: str
    ranks: str
    """A rank list such as ``0-7``."""
    node: str
    incident_id: int | None
    created_wall_ns: int
    created_by: str
    note: str
    until_wall_ns: int
    ended_wall_ns: int | None
    ended_by: str

    def active(self, now_wall_ns: int) -> bool:
        """Whether it holds at that time."""
        return self.ended_wall_ns is None and now_wall_ns < self.until_wall_ns

    def covers(self, job: str, finding: Mapping[str, Any]) -> bool:
        """Whether it covers a finding of ``job``."""
        if (self.job and self.job != job) or (self.kind and self.kind != finding["kind"]):
            return False
        if self.ranks and not _within(finding["ranks"], _ranks(self.ranks)):
            return False
        return not self.node or _within(finding["nodes"], (self.node,))

    def to_dict(self, now_wall_ns: int) -> Json:
        """Return it for JSON."""
        return {
            "id": self.id,
            "active": self.active(now_wall_ns),
            "job": self.job or None,
            "kind": self.kind or None,
            "ranks": self.ranks or None,
            "node": self.node or None,
            "incident_id": self.incident_id,
            "created_wall_ns": self.created_wall_ns,
            "created_by": self.created_by,
            "note": self.note,
            "until_wall_ns": self.until_wall_ns,
            "ended_wall_ns": self.ended_wall_ns,
            "ended_by": self.ended_by or None,
        }


class SilenceBook:
    """The silences that hold now, in memory: alerts and metrics ask at every scrape."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._active: tuple[Silence, ...] = ()
        self._read_mono_s = float("-inf")

    async def refresh(self, *, at_once: bool = False) -> None:
        """Read them again where that is due."""
        now_s = time.monotonic()
        if not at_once and now_s - self._read_mono_s < REFRESH_S:
            return
        async with self._database.read() as connection:
            self._active = tuple(await active_silences(connection, time.time_ns()))
        self._read_mono_s = now_s

    def covering(self, job: str, finding: Mapping[str, Any]) -> Silence | None:
        """Return the silence that covers a finding longest, if any."""
        now_ns = time.time_ns()
        found = [s for s in self._active if s.active(now_ns) and s.covers(job, finding)]
        return max(found, key=lambda silence: silence.until_wall_ns, default=None)


async def add_silence(connection: AsyncConnection, values: Json) -> Silence:
    """Store a silence."""
    query = insert(SilenceRow).values(**values).returning(SilenceRow.id)
    made = (await connection.execute(query)).scalar_one()
    found = await find_silence(connection, int(made))
    assert found is not None
    return found


async def find_silence(connection: AsyncConnection, silence_id: int) -> Silence | None:
    """Return the silence with that number."""
    query = select(SilenceRow.__table__).where(SilenceRow.id == silence_id)
    row = (await connection.execute(query)).mappings().one_or_none()
    return None if row is None else Silence(**row)


async def active_silences(connection: AsyncConnection, now_wall_ns: int) -> list[Silence]:
    """Return those that hold, the newest first."""
    query = (
        select(SilenceRow.__table__)
        .where(SilenceRow.ended_wall_ns.is_(None), SilenceRow.until_wall_ns > now_wall_ns)
        .order_by(SilenceRow.id.desc())
        .limit(MAX_ACTIVE)
    )
    return [Silence(**row) for row in (await connection.execute(query)).mappings()]


async def silences_before(
    connection: AsyncConnection, before_id: int | None, limit: int
) -> list[Silence]:
    """Return silences, ended ones too, the newest first."""
    query = select(SilenceRow.__table__).order_by(SilenceRow.id.desc()).limit(limit)
    if before_id is not None:
        query = query.where(SilenceRow.id < before_id)
    return [Silence(**row) for row in (await connection.execute(query)).mappings()]


async def end_silences(
    connection: AsyncConnection, ids: Iterable[int], by: str, now_wall_ns: int
) -> None:
    """End silences now."""
    change = (
        update(SilenceRow)
        .where(SilenceRow.id.in_(list(ids)), SilenceRow.ended_wall_ns.is_(None))
        .values(ended_wall_ns=now_wall_ns, ended_by=by)
    )
    await connection.execute(change)


@lru_cache(maxsize=64)
def _ranks(text: str) -> frozenset[int]:
    return frozenset(parse_ranks(text))


def _within(named: Iterable[Any], covered: Collection[Any]) -> bool:
    """Whether something is named, and nothing but what is covered."""
    names = set(named)
    return bool(names) and all(name in covered for name in names)
