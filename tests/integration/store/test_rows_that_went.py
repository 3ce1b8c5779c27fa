"""The database is not what the collector knows of it: rows have gone or come beneath it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest
from sqlalchemy import insert, select

from paceline.wire.bundle_codec import decode_any
from paceline_service.errors import StoreUnavailableError
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.store.attempts import delete_attempt
from paceline_service.store.database import Database
from paceline_service.store.frames import CommittedFrame
from paceline_service.store.migrate import migrate
from paceline_service.store.models import FrameRow, JobAttempt, RankIncarnation
from tests.fakes.bundles import node_bundle


@pytest.fixture
async def store(empty: Database) -> Database:
    await migrate(empty)
    return empty


@pytest.fixture
def analysed() -> list[CommittedFrame]:
    return []


@pytest.fixture
async def commits(store: Database, analysed: list[CommittedFrame]) -> AsyncIterator[GroupCommit]:
    one = GroupCommit(store, analysed.extend, queue_bytes=1 << 20, analysis_has_room=lambda: True)
    await one.start()
    yield one
    await one.stop()


def incoming(seqs: Sequence[int]) -> list[IncomingFrame]:
    bundles = [node_bundle(seq) for seq in seqs]
    return [IncomingFrame(frame=decode_any(one), packed=one, offset=0) for one in bundles]


async def test_bundles_of_an_attempt_that_was_deleted_make_another_one(
    store: Database, commits: GroupCommit, analysed: list[CommittedFrame]
) -> None:
    await commits.submit(incoming(range(4)))
    async with store.write() as connection:
        attempt = (await connection.execute(select(JobAttempt.id))).scalar_one()
        while not await delete_attempt(connection, attempt):
            pass
    with pytest.raises(StoreUnavailableError):
        await commits.submit(incoming([4, 5]))
    assert (await commits.submit(incoming([4, 5, 6]))).accepted == 3
    async with store.read() as connection:
        query = select(FrameRow.frame_seq).join(JobAttempt).order_by(FrameRow.id)
        assert (await connection.execute(query)).scalars().all() == [4, 5, 6]
    assert [one.frame.frame_seq for one in analysed] == list(range(7))


async def test_a_bundle_that_is_there_though_nobody_knows_of_it_is_a_duplicate(
    store: Database, commits: GroupCommit
) -> None:
    await commits.submit(incoming([0]))
    async with store.write() as connection:
        stream = (await connection.execute(select(RankIncarnation))).one()
        packed = node_bundle(1)
        await connection.execute(
            insert(FrameRow).values(
                id=1_000, attempt_id=stream.attempt_id, incarnation_id=stream.id, frame_seq=1,
                records=1, received_wall_ns=1, body_bytes=len(packed), body=packed,
            )
        )  # fmt: skip
    with pytest.raises(StoreUnavailableError):
        await commits.submit(incoming([1, 2]))
    outcome = await commits.submit(incoming([1, 2]))
    assert (outcome.accepted, outcome.duplicate) == (1, 1)
