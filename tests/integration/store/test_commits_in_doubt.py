"""The answer to a COMMIT is lost on its way: nobody knows whether the frames are stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from sqlalchemy import func, select
from sqlalchemy.engine import make_url

from paceline.wire.bundle_codec import decode_any
from paceline.wire.codec import decode_frame, split_frames
from paceline_service.errors import StoreUnavailableError
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.jobs.repository import frames_after
from paceline_service.store.database import Database
from paceline_service.store.frames import CommittedFrame
from paceline_service.store.migrate import migrate
from paceline_service.store.models import FrameRow
from tests.fakes.bundles import node_bundle
from tests.integration.collector.kit import bodies, senders
from tests.integration.store.kit import async_url
from tests.simulator.job import Scenario, simulate


class Cable:
    """Passes on what a database and its user say, until it is cut at a COMMIT.

    Args:
        url: of the database.
    """

    def __init__(self, url: str) -> None:
        self._there = make_url(url)
        self._server: asyncio.Server | None = None
        self.url = ""
        self.cut_before = False
        """Cut before the next COMMIT arrives."""
        self.cut_after = False
        """Cut when it was done, before that is told."""

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = self._there.set(port=port).render_as_string(hide_password=False)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(self._there.host, self._there.port)
        cut = asyncio.Event()
        ways = [self._asked(reader, there[1], cut), self._answered(there[0], writer, cut)]
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        for end in (writer, there[1]):
            end.close()

    async def _asked(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while asked := await reader.read(1 << 16):
            if b"COMMIT;" in asked and self.cut_before:
                self.cut_before = False
                return
            if b"COMMIT;" in asked and self.cut_after:
                self.cut_after = False
                cut.set()
            writer.write(asked)

    async def _answered(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: asyncio.Event
    ) -> None:
        while answer := await reader.read(1 << 16):
            if cut.is_set():
                return
            writer.write(answer)


@pytest.fixture
async def cable(postgres_url: str) -> AsyncIterator[Cable]:
    async with Cable(postgres_url) as one:
        yield one


@pytest.fixture
async def database(cable: Cable) -> AsyncIterator[Database]:
    one = Database(async_url(cable.url))
    await migrate(one)
    yield one
    await one.close()


@pytest.fixture
async def analysed() -> list[CommittedFrame]:
    return []


@pytest.fixture
async def commits(database: Database, analysed: list[CommittedFrame]) -> AsyncIterator[GroupCommit]:
    one = GroupCommit(
        database, analysed.extend, queue_bytes=1 << 20, analysis_has_room=lambda: True
    )
    await one.start()
    yield one
    with suppress(asyncio.CancelledError):
        await one.stop()


def requests() -> list[list[IncomingFrame]]:
    """Return what four ranks send, request by request."""
    job = simulate(Scenario(steps=40, seed=2))
    return [
        [
            IncomingFrame(frame=decode_frame(part), packed=part, offset=0)
            for part in split_frames(body)
            if isinstance(part, bytes)
        ]
        for body in bodies(job, senders(job))
    ]


async def stored(database: Database) -> tuple[int, int]:
    """Return how many frames there are, and how many different ones."""
    key = FrameRow.incarnation_id * 1000 + FrameRow.frame_seq
    async with database.read() as connection:
        query = select(func.count(), func.count(key.distinct())).select_from(FrameRow)
        row = (await connection.execute(query)).one()
    return int(row[0]), int(row[1])


@pytest.mark.parametrize("first", [True, False], ids=["of a new job", "of a known job"])
async def test_frames_that_were_stored_after_all_are_analysed_once_in_their_order(
    commits: GroupCommit,
    database: Database,
    cable: Cable,
    analysed: list[CommittedFrame],
    first: bool,
) -> None:
    one, two, three, four = requests()
    if not first:
        await commits.submit(one)
    lost = one if first else two
    cable.cut_after = True
    with pytest.raises(StoreUnavailableError):
        await commits.submit(lost)
    assert not cable.cut_after
    # Somebody else is heard before the sender tries again.
    await commits.submit(three)
    assert (await commits.submit(lost)).duplicate == 4
    await commits.submit(four)
    sent = [*one, *([] if first else two), *three, *four]
    assert await stored(database) == (len(sent), len(sent))
    assert [item.packed for item in analysed] == [item.packed for item in sent]
    numbers = [item.id for item in analysed]
    assert numbers == sorted(set(numbers))


async def test_frames_that_were_not_stored_are_taken_when_they_come_again(
    commits: GroupCommit, database: Database, cable: Cable, analysed: list[CommittedFrame]
) -> None:
    one, two, *_ = requests()
    await commits.submit(one)
    cable.cut_before = True
    with pytest.raises(StoreUnavailableError):
        await commits.submit(two)
    assert not cable.cut_before
    assert (await commits.submit(two)).accepted == 4
    assert await stored(database) == (8, 8)
    assert [item.packed for item in analysed] == [item.packed for item in [*one, *two]]


@pytest.mark.parametrize("stored_after_all", [True, False])
async def test_bundles_behind_a_transaction_in_doubt_are_read_back_whole(
    commits: GroupCommit,
    database: Database,
    cable: Cable,
    analysed: list[CommittedFrame],
    stored_after_all: bool,
) -> None:
    sent = [IncomingFrame(frame=decode_any(one), packed=one, offset=0)
            for one in map(node_bundle, range(5))]  # fmt: skip
    await commits.submit(sent[:1])
    cable.cut_after, cable.cut_before = stored_after_all, not stored_after_all
    with pytest.raises(StoreUnavailableError):
        await commits.submit(sent[1:2])  # it has stored what all of them begin with, or has not
    for one in sent[1:]:
        await commits.submit([one])
    async with database.read() as connection:
        found = await frames_after(connection, analysed[0].attempt, 0)
    assert [one.frame for one in found] == [one.frame for one in sent]
    assert (await stored(database))[0] == 5
