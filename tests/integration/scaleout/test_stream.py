from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import msgspec
import nats
import pytest
from nats.js import api

from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, Sample
from paceline_service.bus.connection import Bus
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.stats import BusStats
from paceline_service.errors import OverloadedError
from paceline_service.ingest.decoding import IncomingFrame
from tests.integration.scaleout.nats import NatsServer

MIB = 1 << 20
LIMITS = api.StreamConfig(max_bytes=MIB, max_age=0.0, duplicate_window=60.0, num_replicas=1)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path / "nats").start()
    yield made
    made.kill()


@pytest.fixture
async def bus(server: NatsServer) -> AsyncIterator[Bus]:
    made = Bus([server.url], stream="S", limits=LIMITS)
    made.start()
    await settled(made)
    yield made
    await made.close()


async def settled(bus: Bus) -> None:
    while not bus.connected and "partitions" not in bus.fault:
        await asyncio.sleep(0.02)


def frame(number: int, size: int) -> IncomingFrame:
    noise = os.urandom(size // 2).hex()
    made = Frame(
        job="j", run_id="r", attempt=0, rank=0, world_size=1, incarnation="a" * 32,
        frame_seq=number, node="n", producer="p", count=0, columns=encode_rows([]),
        telemetry=[Sample(0, {"noise": noise})],
    )  # fmt: skip
    return IncomingFrame(frame=made, packed=encode_frame(made), offset=0)


async def test_a_full_stream_refuses_frames_until_there_is_room(bus: Bus) -> None:
    stats = BusStats()
    publisher = Publisher(bus, queue_bytes=64 * MIB, stats=stats)
    for number in range(8):
        assert (await publisher.submit([frame(number, 100_000)])).accepted == 1
    rest = [frame(number, 100_000) for number in range(8, 30)]
    with pytest.raises(OverloadedError, match="the stream is full"):
        await publisher.submit(rest)
    assert publisher.stats.refused == {"stream_full": 1}
    assert stats.waiting_bytes == 0
    in_stream = (await bus.js.stream_info("S")).state.messages
    assert 8 < in_stream < 30
    await bus.js.purge_stream("S")
    # What was refused is not taken for something that came before.
    outcome = await publisher.submit(rest)
    assert outcome.accepted == 22 - (in_stream - 8)
    assert outcome.duplicate == in_stream - 8


async def test_a_frame_that_came_before_is_a_duplicate_and_one_too_large_is_rejected(
    bus: Bus,
) -> None:
    publisher = Publisher(bus, queue_bytes=64 * MIB, stats=BusStats())
    first = frame(1, 1000)
    assert (await publisher.submit([first, frame(2, 1000)])).accepted == 2
    outcome = await publisher.submit([first, frame(3, 1000)])
    assert (outcome.accepted, outcome.duplicate) == (1, 1)
    large = msgspec.structs.replace(first, packed=bytes(3 * MIB), offset=77)
    outcome = await publisher.submit([large, frame(4, 1000)])
    assert outcome.accepted == 1
    assert outcome.rejected[0].offset == 77
    assert "max_payload" in outcome.rejected[0].reason
    assert publisher.unstored_rejects[0, "ingest", "bus_limit"] == 1


async def test_limits_that_were_changed_are_applied_at_the_next_start(
    bus: Bus, server: NatsServer
) -> None:
    again = Bus([server.url], stream="S", limits=replace(LIMITS, max_bytes=2 * MIB))
    again.start()
    await settled(again)
    assert (await again.js.stream_info("S")).config.max_bytes == 2 * MIB
    await again.close()


async def test_a_stream_with_other_partitions_is_not_used_and_the_fault_is_told(
    server: NatsServer,
) -> None:
    client = await nats.connect(server.url)
    config = api.StreamConfig(
        name="S", subjects=["paceline.frames.*.*"], metadata={"paceline_partitions": "16"},
        retention=api.RetentionPolicy.WORK_QUEUE,
    )  # fmt: skip
    await client.jetstream().add_stream(config)
    await client.close()
    bus = Bus([server.url], stream="S", limits=LIMITS)
    bus.start()
    await settled(bus)
    assert "has 16 partitions" in bus.fault
    assert "this version needs 64" in bus.fault
    assert not bus.connected
    await bus.close()


async def test_a_bus_that_comes_later_is_found(tmp_path: Path) -> None:
    server = NatsServer(tmp_path / "nats")
    bus = Bus([server.url], stream="S", limits=LIMITS)
    bus.start()
    assert not bus.connected
    server.start()
    await settled(bus)
    assert bus.generation == 1
    server.kill()
    server.start()
    for _ in range(400):
        if bus.generation == 2:
            break
        await asyncio.sleep(0.05)
    assert bus.generation == 2
    await bus.close()
    server.kill()
