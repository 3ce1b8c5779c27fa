"""Who offends again: nodes and GPUs that incidents named, over jobs and days."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.store.models import Incident, Job, JobAttempt, Offence

KINDS = frozenset({"straggler", "hang", "communication"})
"""Kinds for which a node or a GPU may be at fault."""
MAX_RANKS = 64
"""A finding about more ranks tells nothing about the hardware of each."""
REMEMBERED_NS = 30 * 86_400 * 10**9
"""How far back an earlier incident counts; faults that come back do so within weeks."""
MAX_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank ran; ``gpu_uuid`` is empty when unknown."""

    node: str
    gpu_uuid: str = ""


@dataclass(slots=True, kw_only=True)
class Offender:
    """What is remembered of one place."""

    node: str
    gpu_uuid: str
    incidents: int = 0
    jobs: set[str] = field(default_factory=set)
    causes: set[str] = field(default_factory=set)
    first_wall_ns: int = 0
    last_wall_ns: int = 0

    @property
    def order(self) -> tuple[int, int, str, str]:
        """Its place in lists: first who was named in the most jobs."""
        return (-len(self.jobs), -self.incidents, self.node, self.gpu_uuid)

    def to_dict(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {
            "node": self.node,
            "gpu_uuid": self.gpu_uuid or None,
            "incidents": self.incidents,
            "jobs": sorted(self.jobs),
            "causes": sorted(self.causes),
            "first_wall_ns": self.first_wall_ns,
            "last_wall_ns": self.last_wall_ns,
        }


def places_named(finding: Mapping[str, Any], places: Mapping[int, Place]) -> set[Place]:
    """Return the places that a finding holds something against; empty where no hardware is."""
    if finding["kind"] not in KINDS or not 0 < len(finding["ranks"]) <= MAX_RANKS:
        return set()
    return {places[rank] for rank in finding["ranks"] if rank in places and places[rank].node}


async def remember(
    connection: AsyncConnection,
    incident_id: int,
    attempt_id: int,
    opened_wall_ns: int,
    places: Iterable[Place],
) -> None:
    """Store whom an incident names, in place of whom it named before."""
    await connection.execute(delete(Offence).where(Offence.incident_id == incident_id))
    if not (places := list(places)):
        return
    # Told here once more: an offence outlives its incident and its attempt.
    query = (
        select(Job.name, Incident.cause)
        .join(JobAttempt, JobAttempt.job_id == Job.id)
        .join(Incident, Incident.attempt_id == JobAttempt.id)
        .where(Incident.id == incident_id)
    )
    job, cause = (await connection.execute(query)).one()
    rows = [
        {
            "incident_id": incident_id,
            "node": place.node,
            "gpu_uuid": place.gpu_uuid,
            "attempt_id": attempt_id,
            "opened_wall_ns": opened_wall_ns,
            "job": job,
            "cause": cause,
        }
        for place in places
    ]
    await connection.execute(insert(Offence), rows)


async def earlier_incidents(
    connection: AsyncConnection, incident_ids: Iterable[int]
) -> dict[int, int]:
    """Return, per incident, how many earlier ones of other attempts named its places.

    The same GPU counts wherever it is now; the same node counts where no GPU is known.
    """
    mine, other = Offence.__table__.alias(), Offence.__table__.alias()
    same_gpu = and_(other.c.gpu_uuid == mine.c.gpu_uuid, mine.c.gpu_uuid != "")
    same_node = and_(
        other.c.node == mine.c.node, (mine.c.gpu_uuid == "") | (other.c.gpu_uuid == "")
    )
    query = (
        select(mine.c.incident_id, func.count(other.c.incident_id.distinct()))
        .join(
            other,
            and_(
                same_gpu | same_node,
                other.c.attempt_id != mine.c.attempt_id,
                other.c.opened_wall_ns < mine.c.opened_wall_ns,
                other.c.opened_wall_ns >= mine.c.opened_wall_ns - REMEMBERED_NS,
            ),
        )
        .outerjoin(Incident, Incident.id == other.c.incident_id)
        .where(mine.c.incident_id.in_(list(incident_ids)), _stands())
        .group_by(mine.c.incident_id)
    )
    return {row[0]: row[1] for row in (await connection.execute(query)).all()}


def _stands() -> ColumnElement[bool]:
    """Return that the incident was not withdrawn; one that retention deleted was not."""
    return func.coalesce(Incident.closed_reason, "") != "withdrawn"


async def offenders_since(
    connection: AsyncConnection, since_wall_ns: int, covers: Callable[[str], bool]
) -> list[Offender]:
    """Return the places that incidents since then named, the most often named first.

    Args:
        connection: to read with.
        since_wall_ns: older incidents do not count.
        covers: whether the reader may know of a job.
    """
    query = (
        select(
            Offence.node, Offence.gpu_uuid, Offence.opened_wall_ns, Offence.cause, Offence.job
        )
        .outerjoin(Incident, Incident.id == Offence.incident_id)
        .where(Offence.opened_wall_ns >= since_wall_ns, _stands())
        .order_by(Offence.opened_wall_ns.desc())
        .limit(MAX_ROWS)
    )  # fmt: skip
    found: dict[tuple[str, str], Offender] = {}
    for row in (await connection.execute(query)).all():
        if not covers(row.job):
            continue
        one = found.setdefault(
            (row.node, row.gpu_uuid), Offender(node=row.node, gpu_uuid=row.gpu_uuid)
        )
        one.incidents += 1
        one.jobs.add(row.job)
        one.causes.add(row.cause)
        one.last_wall_ns = one.last_wall_ns or row.opened_wall_ns
        one.first_wall_ns = row.opened_wall_ns
    return sorted(found.values(), key=lambda one: one.order)


async def worst_nodes(
    connection: AsyncConnection, since_wall_ns: int, limit: int
) -> list[tuple[str, int]]:
    """Return the nodes that most incidents since then named, with how many; the most first."""
    count = func.count(Offence.incident_id.distinct())
    query = (
        select(Offence.node, count)
        .outerjoin(Incident, Incident.id == Offence.incident_id)
        .where(Offence.opened_wall_ns >= since_wall_ns, _stands())
        .group_by(Offence.node)
        .order_by(count.desc(), Offence.node)
        .limit(limit)
    )
    return [(row[0], row[1]) for row in (await connection.execute(query)).all()]
