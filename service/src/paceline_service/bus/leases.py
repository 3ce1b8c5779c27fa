"""The SQL of leases: who owns which partition. PostgreSQL only; its clock is the one that counts.

Rows are always locked in the order of partitions, so that no two transactions wait for each other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sqlalchemy import BigInteger, ColumnElement, delete, literal_column, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from paceline_service.bus.subjects import PARTITIONS
from paceline_service.store.models import AnalyzerRow, Lease

_NOW_NS = literal_column("CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000000 AS bigint)",
                         BigInteger)  # fmt: skip
FORGET_NS = 3_600_000_000_000
"""An analyzer that was not seen for so long is deleted."""


async def prepare(connection: AsyncConnection) -> None:
    """Make the rows of all partitions where they are missing."""
    rows = [
        {"partition": number, "owner": "", "epoch": 0, "expires_wall_ns": 0}
        for number in range(PARTITIONS)
    ]
    await connection.execute(insert(Lease).on_conflict_do_nothing(), rows)


async def beat(connection: AsyncConnection, owner: str) -> None:
    """Say that ``owner`` is alive and can work."""
    alive = insert(AnalyzerRow).values(name=owner, seen_wall_ns=_NOW_NS)
    await connection.execute(
        alive.on_conflict_do_update(index_elements=["name"], set_={"seen_wall_ns": _NOW_NS})
    )
    old = delete(AnalyzerRow).where(AnalyzerRow.seen_wall_ns < _NOW_NS - FORGET_NS)
    await connection.execute(old)


async def alive(connection: AsyncConnection, ttl_ns: int) -> list[str]:
    """Return the names of the analyzers that said so within ``ttl_ns``, in order."""
    query = select(AnalyzerRow.name).where(AnalyzerRow.seen_wall_ns > _NOW_NS - ttl_ns)
    return sorted((await connection.execute(query)).scalars())


async def renew(connection: AsyncConnection, owner: str, ttl_ns: int) -> dict[int, int]:
    """Prolong every lease of ``owner``, also one that ran out untaken; return their epochs."""
    mine = (
        select(Lease.partition)
        .where(Lease.owner == owner)
        .order_by(Lease.partition)
        .with_for_update()
    )
    partitions = list((await connection.execute(mine)).scalars())
    change = (
        update(Lease)
        .where(Lease.partition.in_(partitions), Lease.owner == owner)
        .values(expires_wall_ns=_NOW_NS + ttl_ns)
        .returning(Lease.partition, Lease.epoch)
    )
    return {row.partition: row.epoch for row in (await connection.execute(change)).all()}


async def take(connection: AsyncConnection, owner: str, count: int, ttl_ns: int) -> dict[int, int]:
    """Take up to ``count`` partitions that nobody owns; return their new epochs."""
    free = (
        select(Lease.partition)
        .where(Lease.expires_wall_ns < _NOW_NS, Lease.owner != owner)
        .order_by(Lease.partition)
        .limit(count)
        .with_for_update(skip_locked=True)
    )
    partitions = list((await connection.execute(free)).scalars())
    change = (
        update(Lease)
        .where(Lease.partition.in_(partitions))
        .values(owner=owner, epoch=Lease.epoch + 1, expires_wall_ns=_NOW_NS + ttl_ns)
        .returning(Lease.partition, Lease.epoch)
    )
    return {row.partition: row.epoch for row in (await connection.execute(change)).all()}


async def release(connection: AsyncConnection, owner: str, partitions: Iterable[int]) -> None:
    """Give partitions back."""
    await _give_back(connection, Lease.owner == owner, Lease.partition.in_(list(partitions)))


async def leave(connection: AsyncConnection, owner: str) -> None:
    """Give everything back: the others need not wait until the leases run out."""
    await _give_back(connection, Lease.owner == owner)
    await connection.execute(delete(AnalyzerRow).where(AnalyzerRow.name == owner))


async def _give_back(connection: AsyncConnection, *which: ColumnElement[bool]) -> None:
    chosen = select(Lease.partition).where(*which).order_by(Lease.partition).with_for_update()
    locked = list((await connection.execute(chosen)).scalars())
    change = update(Lease).where(Lease.partition.in_(locked)).values(owner="", expires_wall_ns=0)
    await connection.execute(change)


async def hold(
    connection: AsyncConnection, owner: str, partitions: Collection[int]
) -> dict[int, int]:
    """Return the epochs of those that ``owner`` has, and keep them so until the transaction ends.

    Nobody can take them in the meantime: what the transaction writes is written by their owner.
    """
    query = (
        select(Lease.partition, Lease.epoch)
        .where(Lease.partition.in_(list(partitions)), Lease.owner == owner)
        .order_by(Lease.partition)
        .with_for_update(read=True)
    )
    return {row.partition: row.epoch for row in (await connection.execute(query)).all()}
