"""A collector is upgraded, schema and all, while agents of the version before go on sending.

Sidecars send bundles, wire version 2. N-1 is version 1, in its oldest form: what the first agents
sent, without any member that came later.
"""

from __future__ import annotations

import asyncio
import zlib
from pathlib import Path

import msgspec
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

from paceline.wire.codec import BUNDLE_VERSION, HEADER, MAGIC, VERSION, ZLIB
from paceline.wire.dictionary import DICTIONARY
from paceline_service.store.database import Database
from paceline_service.store.migrate import SCRIPTS
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.faults.sending import Senders, assert_stored_once
from tests.simulator.job import Scenario, Simulated, simulate

OLD_SCHEMA = "0003"
FIRST_MEMBERS = frozenset(
    {
        "job", "run_id", "attempt", "rank", "world_size", "incarnation", "frame_seq", "node",
        "producer", "count", "columns", "groups", "local_rank", "clock_domain", "anchor_mono_ns",
        "anchor_wall_ns", "sent_wall_ns", "step", "pending", "dropped", "ended", "info",
    }
)  # fmt: skip
"""Of a frame as the first agents made it."""


def as_the_first_agents(body: bytes) -> bytes:
    """Return frames with the members of the first agents only."""
    out = []
    offset = 0
    while offset < len(body):
        end = offset + HEADER.size + HEADER.unpack_from(body, offset)[4]
        inflater = zlib.decompressobj(zdict=DICTIONARY)
        members = msgspec.msgpack.decode(inflater.decompress(body[offset + HEADER.size : end]))
        raw = msgspec.msgpack.encode({k: v for k, v in members.items() if k in FIRST_MEMBERS})
        packed = zlib.compress(raw, 6)
        head = (MAGIC, VERSION, ZLIB, 0, len(packed), len(raw), zlib.crc32(packed))
        out.append(HEADER.pack(*head) + packed)
        offset = end
    return b"".join(out)


def downgrade(collector: CollectorProcess) -> None:
    """Bring the database of a stopped collector to the schema of the version before."""

    def run(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        command.downgrade(config, OLD_SCHEMA)

    async def work() -> None:
        database = Database(f"sqlite+aiosqlite:///{collector.database}")
        async with database.write() as connection:
            await connection.run_sync(run)
        await database.close()

    asyncio.run(work())


@pytest.fixture(scope="module")
def job() -> Simulated:
    """Four healthy ranks."""
    return simulate(Scenario(steps=240, seed=5, buckets=1))


def test_an_upgrade_of_the_schema_while_old_agents_send_costs_no_frame(
    collector: CollectorProcess, job: Simulated, tmp_path: Path
) -> None:
    port = collector.url.rpartition(":")[2]
    old = [
        [as_the_first_agents(body) for body in bodies(job, senders(job, job=f"old{number}"))]
        for number in range(2)
    ]
    for of_job in old:
        for body in of_job[:8]:
            assert collector.client().post_frames(body)["accepted"] == 4
    assert collector.stop() == 0
    downgrade(collector)
    assert collector.rows("SELECT version_num FROM alembic_version") == [(OLD_SCHEMA,)]
    with Senders(lambda: collector.url, [of_job[6:] for of_job in old]) as sending:
        wait_until(lambda: not sending.done, 5)
        collector.start("--port", port)  # the upgrade happens before it listens
        sending.join(60)
        assert sending.done
        assert not sending.problems
    assert collector.rows("SELECT version_num FROM alembic_version") > [(OLD_SCHEMA,)]
    assert assert_stored_once(collector, sending.promised()) == 2 * 4 * 24
    for number in range(2):
        row = wait_for_state(collector.client(), f"old{number}", "ended", 30)
        assert row["steps"] == 240
        assert collector.client().report(f"old{number}")["data"]["complete"]


def test_a_frame_of_a_version_to_come_is_refused_with_the_remedy_and_others_are_taken(
    collector: CollectorProcess, job: Simulated
) -> None:
    body = next(bodies(job, senders(job)))
    first = HEADER.size + HEADER.unpack_from(body, 0)[4]
    newer = bytearray(body)
    newer[len(MAGIC)] = BUNDLE_VERSION + 1
    answer = collector.client().post_frames(bytes(newer))
    assert answer["accepted"] == 3
    assert answer["rejected"][0]["offset"] == 0
    assert "update it" in answer["rejected"][0]["reason"]
    assert first < len(body)
