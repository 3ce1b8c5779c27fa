"""What bundles begin with is stored once, and every bundle is read back as it came."""

from __future__ import annotations

import re
import subprocess
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import delete, func, select, text
from sqlalchemy.exc import DBAPIError

from paceline.wire.bundle_codec import decode_any
from paceline.wire.frames import GroupDef
from paceline_service.errors import StoreUnavailableError
from paceline_service.ingest import repository
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.ingest.heads import MOST_HEADS
from paceline_service.jobs.repository import frames_after
from paceline_service.store import partitions
from paceline_service.store.attempts import delete_attempt
from paceline_service.store.database import Database
from paceline_service.store.frames import CommittedFrame
from paceline_service.store.migrate import migrate
from paceline_service.store.models import FrameHead, FrameRow, JobAttempt
from tests.fakes.bundles import DP, node_bundle
from tests.integration.postgres import PostgresServer
from tests.integration.store.kit import async_url, move

OPERATIONS = Path(__file__).parents[3] / "docs" / "operations.md"
TP = GroupDef(index=1, name="tp", ranks="0-3", backend="nccl")


@pytest.fixture
async def store(empty: Database) -> Database:
    await migrate(empty)
    return empty


@pytest.fixture
async def commits(store: Database) -> AsyncIterator[GroupCommit]:
    one = collector_of(store, [])
    await one.start()
    yield one
    await one.stop()


def collector_of(store: Database, analysed: list[CommittedFrame]) -> GroupCommit:
    return GroupCommit(store, analysed.extend, queue_bytes=1 << 20, analysis_has_room=lambda: True)


def incoming(bundles: Sequence[bytes]) -> list[IncomingFrame]:
    return [IncomingFrame(frame=decode_any(one), packed=one, offset=0) for one in bundles]


async def counted(store: Database) -> tuple[int, int, int]:
    """Return how many heads there are, the bytes of bodies, and what the attempt says of those."""
    async with store.read() as connection:
        heads = select(func.count()).select_from(FrameHead)
        sizes = select(func.sum(FrameRow.body_bytes), func.sum(func.length(FrameRow.body)))
        told, true = (await connection.execute(sizes)).one()
        assert told == true
        kept = (await connection.execute(select(JobAttempt.raw_bytes))).scalar_one()
        return (await connection.execute(heads)).scalar_one(), true, kept


async def read_back(store: Database, like: CommittedFrame) -> list[CommittedFrame]:
    async with store.read() as connection:
        return await frames_after(connection, like.attempt, 0)


async def test_bundles_are_stored_without_what_they_begin_with_and_read_back_with_it(
    store: Database,
) -> None:
    analysed: list[CommittedFrame] = []
    commits = collector_of(store, analysed)
    await commits.start()
    more = [DP, TP]
    sent = [node_bundle(seq) for seq in range(10)]
    sent += [node_bundle(seq, groups=more) for seq in range(10, 20)]
    for first in (0, 3, 6):  # requests of three, then of all that is left
        await commits.submit(incoming(sent[first : first + 3 if first < 6 else 20]))
    await commits.stop()
    heads, stored_bytes, told_bytes = await counted(store)
    assert heads == 2
    assert stored_bytes == told_bytes < 0.85 * sum(map(len, sent))
    found = await read_back(store, analysed[0])
    assert [one.frame for one in found] == [decode_any(packed) for packed in sent]
    assert [one.packed_bytes for one in found] == [one.packed_bytes for one in analysed]
    assert [one.packed_bytes for one in analysed] == [len(one) for one in sent]


async def test_a_restarted_collector_goes_on_with_a_head_of_its_own(store: Database) -> None:
    analysed: list[CommittedFrame] = []
    for begin in (0, 5):
        commits = collector_of(store, analysed)
        await commits.start()
        await commits.submit(incoming([node_bundle(seq) for seq in range(begin, begin + 5)]))
        await commits.stop()
    assert (await counted(store))[0] == 2
    found = await read_back(store, analysed[0])
    assert [one.frame for one in found] == [decode_any(node_bundle(seq)) for seq in range(10)]


async def test_a_head_goes_with_its_attempt(store: Database, commits: GroupCommit) -> None:
    await commits.submit(incoming([node_bundle(seq) for seq in range(4)]))
    assert (await counted(store))[0] == 1
    async with store.write() as connection:
        attempt = (await connection.execute(select(JobAttempt.id))).scalar_one()
        while not await delete_attempt(connection, attempt):
            pass
        left = select(func.count()).select_from(FrameHead)
        assert (await connection.execute(left)).scalar_one() == 0


async def test_the_version_before_gets_its_bundles_whole(
    store: Database, commits: GroupCommit
) -> None:
    sent = [node_bundle(seq) for seq in range(6)]
    await commits.submit(incoming(sent))
    assert (await counted(store))[1] < sum(map(len, sent))
    await move(store, "0010")
    async with store.read() as connection:
        query = text("SELECT body, body_bytes FROM frames ORDER BY id")
        rows = (await connection.execute(query)).all()
        kept = (await connection.execute(text("SELECT raw_bytes FROM job_attempts"))).scalar_one()
    assert [(bytes(body), size) for body, size in rows] == [(one, len(one)) for one in sent]
    assert kept == sum(map(len, sent))
    await migrate(store)


async def test_after_many_failures_bundles_are_stored_without_their_head_again(
    store: Database, commits: GroupCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commits.submit(incoming([node_bundle(seq) for seq in range(3)]))
    with monkeypatch.context() as full:

        async def no_space(*_: object) -> None:
            raise OSError("no space left on device")

        full.setattr(repository, "insert_frames", no_space)
        for _ in range(2 * MOST_HEADS):
            with pytest.raises(StoreUnavailableError):
                await commits.submit(incoming([node_bundle(3)]))
    await commits.submit(incoming([node_bundle(seq) for seq in range(3, 9)]))
    async with store.read() as connection:
        whole = select(FrameRow.frame_seq).where(FrameRow.head_id.is_(None))
        first = (await connection.execute(whole.order_by(FrameRow.id))).scalars().all()
    assert first == [0, 3]
    assert (await counted(store))[0] == 2, "that of a bundle which came again fits the next ones"


async def test_a_database_that_went_back_beneath_its_collector_gets_what_is_left_out_again(
    postgres_url: str,
) -> None:
    store = Database(async_url(postgres_url))
    await migrate(store)
    analysed: list[CommittedFrame] = []
    commits = collector_of(store, analysed)
    await commits.start()
    await commits.submit(incoming([node_bundle(0)]))
    await commits.submit(incoming([node_bundle(1)]))  # it stores the head
    async with store.write() as connection:
        await connection.execute(delete(FrameRow).where(FrameRow.frame_seq == 1))
        await connection.execute(delete(FrameHead))
    other = Database(async_url(postgres_url))
    async with other.read() as connection:
        others = "FROM pg_stat_activity WHERE datname = current_database()"
        end = f"SELECT pg_terminate_backend(pid) {others} AND pid <> pg_backend_pid()"
        await connection.execute(text(end))
    await other.close()
    # Who reads meets the broken connections; the writer gets a new one and hears of nothing.
    with pytest.raises((DBAPIError, OSError)):
        await store.ping()
    for seq in range(2, 6):
        await commits.submit(incoming([node_bundle(seq)]))
    await commits.stop()
    found = await read_back(store, analysed[0])
    assert [one.frame for one in found] == [decode_any(node_bundle(n)) for n in (0, 2, 3, 4, 5)]
    await store.close()


async def test_a_dump_without_raw_frames_goes_on_counting_them(
    postgres: PostgresServer, postgres_url: str
) -> None:
    asked = re.search(r"`pg_dump -Fc (--exclude.*) paceline`", OPERATIONS.read_text())
    assert asked is not None
    store = Database(async_url(postgres_url))
    await migrate(store)
    commits = collector_of(store, [])
    await commits.start()
    await commits.submit(incoming([node_bundle(seq) for seq in range(4)]))
    await commits.stop()
    async with store.write() as connection:
        for _ in range(2):
            await partitions.frames_ahead(connection, full_bytes=1, oldest_wall_ns=0)
        next_id = (await repository.take_frame_ids(connection, 1))[0]
    await store.close()
    options = asked[1].replace("'", "").split()
    dump = [str(postgres.binaries / "pg_dump"), *options, postgres_url]
    told = subprocess.run(dump, check=True, capture_output=True, text=True).stdout
    assert f"setval('public.frame_ids', {next_id}, true)" in told
    copied = [line for line in told.splitlines() if line.startswith("COPY public.frame")]
    assert copied == []
