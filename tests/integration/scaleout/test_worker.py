"""One partition on a real stream; what is committed is only written down."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import SimpleNamespace

import pytest
from nats.js import api

from paceline_service.bus.connection import Bus
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.stats import BusStats
from paceline_service.bus.subjects import filter_of, partition_of
from paceline_service.bus.worker import PartitionWorker
from paceline_service.errors import BusUnavailableError
from paceline_service.ingest.commit import Outcome
from paceline_service.ingest.decoding import IncomingFrame
from tests.integration.scaleout.nats import NatsServer
from tests.integration.scaleout.test_stream import LIMITS, MIB, frame, settled

PARTITION = partition_of("j")


class Commits:
    """Takes frames in the place of the database."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.stats = SimpleNamespace(last_error="")
        self.fail_at: int | None = None

    async def submit(self, frames: Sequence[IncomingFrame]) -> Outcome:
        numbers = [item.frame.frame_seq for item in frames]
        if self.fail_at in numbers:
            self.fail_at = None
            raise BusUnavailableError("in the middle of a batch")
        self.numbers += numbers
        return Outcome(accepted=len(frames))

    def count_rejects(self, reasons: Sequence[str]) -> None:
        raise AssertionError(reasons)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path_factory.mktemp("worker") / "nats").start()
    yield made
    made.kill()


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    made = Bus([server.url], stream="S", limits=LIMITS)
    made.start()
    await settled(made)
    yield made
    await settled(made)
    await made.js.delete_stream("S")
    await made.close()


class Working:
    """A worker that runs, and the publisher of its frames."""

    def __init__(self, bus: Bus, *, epoch: int = 3, owned: bool = True) -> None:
        async def is_owned() -> bool:
            return owned

        self.commits = Commits()
        self.publisher = Publisher(bus, queue_bytes=64 * MIB, stats=BusStats())
        self.worker = PartitionWorker(
            bus, PARTITION, epoch, self.commits, lambda: True, is_owned,  # type: ignore[arg-type]
            max_world_size=8, stats=BusStats(),
        )  # fmt: skip
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.worker.run())

    async def stop(self) -> None:
        assert self.task is not None
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def publish(self, *numbers: int) -> None:
        await self.publisher.submit([frame(number, 100) for number in numbers])


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(1600):
        if is_so():
            return
        await asyncio.sleep(0.025)
    raise AssertionError("not so after 40 s")


async def test_after_an_error_in_the_middle_of_a_batch_its_messages_come_again_at_once_and_in_order(
    bus: Bus,
) -> None:
    working = Working(bus)
    working.commits.fail_at = 2
    await working.publish(*range(12))
    working.start()
    await until(lambda: len(working.commits.numbers) == 12)
    assert working.commits.numbers == list(range(12))
    await working.stop()


@pytest.mark.parametrize("owned", [True, False])
async def test_a_consumer_of_a_later_lease_stops_only_who_does_not_own_the_partition(
    bus: Bus, owned: bool
) -> None:
    """A database from a backup counts leases that NATS has seen before."""
    later = api.ConsumerConfig(
        durable_name=f"frames-{PARTITION}-7-1", filter_subject=filter_of(PARTITION),
        ack_policy=api.AckPolicy.EXPLICIT,
    )  # fmt: skip
    await bus.js.add_consumer("S", later)
    working = Working(bus, owned=owned)
    await working.publish(1, 2)
    working.start()
    if owned:
        await until(lambda: working.commits.numbers == [1, 2])
    else:
        await until(lambda: working.task is not None and working.task.done())
        assert working.commits.numbers == []
    names = {info.name for info in await bus.js.consumers_info("S")}
    assert names == {f"frames-{PARTITION}-3-{bus.generation}" if owned else later.durable_name}
    await working.stop()


async def test_a_stream_that_was_deleted_is_made_again_by_who_misses_it(bus: Bus) -> None:
    working = Working(bus)
    await bus.js.delete_stream("S")
    working.start()
    await until(lambda: working.worker.bound)
    assert bus.generation == 2
    await working.publish(1)
    await until(lambda: working.commits.numbers == [1])
    await working.stop()
    await bus.js.delete_stream("S")
    with pytest.raises(BusUnavailableError, match="no stream takes this subject"):
        await working.publish(2)
    await until(lambda: bus.generation == 3)
    await working.publish(2)
    assert (await bus.js.stream_info("S")).state.messages == 1
