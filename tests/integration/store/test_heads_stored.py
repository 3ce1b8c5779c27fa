"""What bundles begin with is stored once, and every bundle is read back as it came."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import func, select, text

from paceline.wire.bundle_codec import decode_any
from paceline.wire.frames import GroupDef
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.jobs.repository import frames_after
from paceline_service.store.attempts import delete_attempt
from paceline_service.store.database import Database
from paceline_service.store.frames import CommittedFrame
from paceline_service.store.migrate import migrate
from paceline_service.store.models import FrameHead, FrameRow, JobAttempt
from tests.fakes.bundles import DP, node_bundle
from tests.integration.store.kit import move

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
