"""Partitions on PostgreSQL: made ahead, and dropped whole when everything in them is too old.

``frames`` is cut by ranges of ids: ids that agree above ``FRAME_BITS`` are together, and when the
newest partition is large or old enough the sequence of ids jumps to the next one. ``lanes`` and
``rank_windows`` are cut by when they were stored; a default partition holds what came while the
collector's clock was wrong.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

FRAME_BITS = 32
HOUR_NS = 3600 * 10**9
SPANS_NS = {"lanes": HOUR_NS, "rank_windows": 6 * HOUR_NS}
"""How much time one partition of each table holds."""
AHEAD = 2
LOCK_TIMEOUT = "2s"
"""Longer than this nobody behind us shall wait because we wait for a reader."""

_LIST = text(
    "SELECT child.relname AS name, pg_get_expr(child.relpartbound, child.oid) AS bound, "
    "pg_total_relation_size(child.oid) AS bytes "
    "FROM pg_inherits JOIN pg_class AS child ON child.oid = pg_inherits.inhrelid "
    "WHERE pg_inherits.inhparent = CAST(CAST(:name AS text) AS regclass)"
)
_BOUND = re.compile(r"FROM \((MINVALUE|'?-?\d+'?)\) TO \('?(-?\d+)'?\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """One of them; it holds keys from ``low`` to before ``high``."""

    name: str
    low: int
    high: int
    bytes: int


async def partitions(connection: AsyncConnection, table: str) -> list[Partition]:
    """Return the partitions of a table in the order of their ranges, without the default one."""
    found = []
    for row in (await connection.execute(_LIST, {"name": table})).all():
        if match := _BOUND.search(row.bound):
            low = match[1].strip("'")
            found.append(
                Partition(
                    name=row.name, low=-(1 << 63) if low == "MINVALUE" else int(low),
                    high=int(match[2]), bytes=row.bytes,
                )
            )  # fmt: skip
    return sorted(found, key=lambda one: one.high)


async def wait_briefly(connection: AsyncConnection) -> None:
    """Let the statements of this transaction that lock tables give up soon."""
    await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))


async def drop(connection: AsyncConnection, partition: Partition) -> None:
    """Delete a partition with all that is in it."""
    await connection.execute(text(f'DROP TABLE "{partition.name}"'))


async def frames_ahead(
    connection: AsyncConnection, *, full_bytes: int, oldest_wall_ns: int
) -> None:
    """Make the next partition of frames, and go on to it where the present one is full or old.

    Args:
        connection: within a transaction.
        full_bytes: a partition with more takes no new frames.
        oldest_wall_ns: nor does one whose first frame came before.
    """
    taken = "SELECT last_value - CASE WHEN is_called THEN 0 ELSE 1 END FROM frame_ids"
    number = int((await connection.execute(text(taken))).scalar_one()) >> FRAME_BITS
    known = {one.high >> FRAME_BITS: one for one in await partitions(connection, "frames")}
    present = known.get(number + 1)
    if number + 2 not in known:
        await _make_frames(connection, number + 1)
        return  # this pass made it, the next one may go on to it: then it is there for everybody
    if present is None or await _empty(connection, present.name):
        return
    first = f'SELECT received_wall_ns FROM "{present.name}" ORDER BY id LIMIT 1'
    came_ns = int((await connection.execute(text(first))).scalar_one())
    if present.bytes >= full_bytes or came_ns < oldest_wall_ns:
        query = text("SELECT setval('frame_ids', CAST(:first AS bigint), false)")
        await connection.execute(query, {"first": (number + 1) << FRAME_BITS})


async def spans_ahead(connection: AsyncConnection, table: str, now_wall_ns: int) -> None:
    """Make the partitions of the present time and of the next ones."""
    span_ns = SPANS_NS[table]
    known = {one.low for one in await partitions(connection, table)}
    present = now_wall_ns // span_ns
    for number in range(present - 1, present + 1 + AHEAD):
        low, high = number * span_ns, (number + 1) * span_ns
        if low not in known:
            await _make_span(connection, table, low, high)


async def _make_frames(connection: AsyncConnection, number: int) -> None:
    name = f"frames_p{number}"
    low, high = number << FRAME_BITS, (number + 1) << FRAME_BITS
    await connection.execute(
        text(f"CREATE TABLE {name} PARTITION OF frames FOR VALUES FROM ({low}) TO ({high})")
    )
    # Over all partitions it cannot be: that key would have to name the id.
    await connection.execute(
        text(f"ALTER TABLE {name} ADD CONSTRAINT uq_{name}_incarnation_id_frame_seq "
             "UNIQUE (incarnation_id, frame_seq)")
    )  # fmt: skip


async def _make_span(connection: AsyncConnection, table: str, low: int, high: int) -> None:
    """Make a partition; what the default one held of its range moves into it."""
    await connection.execute(
        text(
            f"CREATE TEMPORARY TABLE moved ON COMMIT DROP AS SELECT * FROM {table}_default "
            f"WHERE stored_wall_ns >= {low} AND stored_wall_ns < {high}"
        )
    )
    await connection.execute(
        text(
            f"DELETE FROM {table}_default WHERE stored_wall_ns >= {low} AND stored_wall_ns < {high}"
        )
    )
    await connection.execute(
        text(
            f"CREATE TABLE {table}_p{low // 10**9} PARTITION OF {table} "
            f"FOR VALUES FROM ({low}) TO ({high})"
        )
    )
    await connection.execute(text(f"INSERT INTO {table} SELECT * FROM moved"))
    await connection.execute(text("DROP TABLE moved"))


async def _empty(connection: AsyncConnection, name: str) -> bool:
    return (await connection.execute(text(f'SELECT 1 FROM "{name}" LIMIT 1'))).first() is None
