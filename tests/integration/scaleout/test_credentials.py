from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_service.bus.connection import Bus
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.stats import BusStats
from paceline_service.errors import BusUnavailableError
from tests.integration.scaleout.credentials import Authority
from tests.integration.scaleout.nats import NatsServer
from tests.integration.scaleout.test_stream import LIMITS, MIB, frame, settled
from tests.integration.scaleout.test_worker import Working, until


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[NatsServer]:
    made = NatsServer(tmp_path_factory.mktemp("jwt") / "nats", authority.config).start()
    yield made
    made.kill()


def bus_of(server: NatsServer, credentials: Path, stream: str = "S") -> Bus:
    bus = Bus([server.url], stream=stream, limits=LIMITS, credentials=credentials)
    bus.start()
    return bus


async def told(bus: Bus, part: str) -> str:
    """Return what is wrong with a bus, once ``part`` is in it."""
    for _ in range(1600):
        if part in bus.trouble:
            return bus.trouble
        await asyncio.sleep(0.025)
    raise AssertionError(f"{part!r} is not in {bus.trouble!r}")


async def test_credentials_that_expire_are_told_and_new_ones_in_their_place_are_taken(
    server: NatsServer, authority: Authority, tmp_path: Path
) -> None:
    path = authority.user(tmp_path / "short.creds", exp=int(time.time()) + 2)
    bus = bus_of(server, path)
    await settled(bus)
    working = Working(bus)
    working.start()
    await working.publish(1)
    words = await told(bus, "they expired at 20")
    assert f"NATS refuses the credentials {path}" in words
    assert "nsc generate creds" in words
    with pytest.raises(BusUnavailableError, match="they expired at"):
        await working.publish(2)
    authority.user(path)
    await settled(bus)
    await working.publish(2)
    await until(lambda: working.commits.numbers == [1, 2])
    await working.stop()
    await bus.close()


async def test_credentials_of_a_stranger_are_refused_and_their_secret_is_not_told(
    server: NatsServer, tmp_path: Path
) -> None:
    path = Authority().user(tmp_path / "stranger.creds")
    bus = bus_of(server, path)
    words = await told(bus, "the server does not know their account or user")
    assert str(path) in words
    assert not [part for part in path.read_text().split() if len(part) > 50 and part in words]
    await bus.close()


async def test_a_file_that_is_damaged_while_the_process_runs_is_told(
    server: NatsServer, authority: Authority, tmp_path: Path
) -> None:
    path = authority.user(tmp_path / "damaged.creds")
    whole = path.read_text()
    seed = whole.split("SEED-----\n")[1].split("\n")[0]
    path.write_text(whole.replace(seed, f"{seed[:-6]}AAAAAA"))
    bus = bus_of(server, path)
    assert seed[:20] not in await told(bus, "the key in the NATS credentials")
    path.write_text("")  # somebody writes it anew at this moment
    await told(bus, "have no NATS USER JWT and no USER NKEY SEED in them")
    path.write_text(whole)
    await settled(bus)
    await bus.close()


async def test_a_permission_that_is_missing_is_told_with_the_remedy(
    server: NatsServer, authority: Authority, tmp_path: Path
) -> None:
    may_not_publish = authority.user(tmp_path / "reads.creds", publish=["$JS.API.>"])
    bus = bus_of(server, may_not_publish)
    await settled(bus)
    assert bus.trouble == ""
    publisher = Publisher(bus, queue_bytes=64 * MIB, stats=BusStats())
    with pytest.raises(BusUnavailableError, match="permissions violation for publish"):
        await publisher.submit([frame(1, 1000)])
    assert "docs/scale-out.md lists what its user has to be allowed" in bus.trouble
    await bus.close()
    may_not_ask = authority.user(tmp_path / "writes.creds", publish=["paceline.frames.>"])
    bus = bus_of(server, may_not_ask)
    assert "$js.api.stream.info" in await told(bus, "permissions violation")
    await bus.close()


async def test_an_account_without_jetstream_is_told_with_the_remedy(tmp_path: Path) -> None:
    authority = Authority(jetstream=False)
    server = NatsServer(tmp_path / "nats", authority.config).start()
    bus = bus_of(server, authority.user(tmp_path / "user.creds"))
    assert "for the account of these credentials" in await told(bus, "enable JetStream")
    await bus.close()
    server.kill()
