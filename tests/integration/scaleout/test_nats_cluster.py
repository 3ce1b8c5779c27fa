"""Three NATS servers that ask for TLS and a password, as docs/scale-out.md recommends."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import trustme

from paceline_service.bus.connection import Bus
from paceline_service.bus.publisher import Publisher
from paceline_service.bus.stats import BusStats
from paceline_service.errors import BusUnavailableError
from tests.integration.scaleout.nats import NatsServer
from tests.integration.scaleout.test_stream import LIMITS, MIB, frame, settled

THREE = replace(LIMITS, num_replicas=3)
USER, PASSWORD = "paceline", "5ecret-of-nats"


def free_ports(count: int) -> list[int]:
    """Ports that were free together."""
    with ExitStack() as held:
        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [probe.getsockname()[1] for probe in probes]


class SecuredCluster:
    """Three servers of one cluster; what goes to clients is encrypted."""

    def __init__(self, directory: Path) -> None:
        authority = trustme.CA()
        self.ca = directory / "ca.pem"
        authority.cert_pem.write_to_path(self.ca)
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(directory / "server.pem")
        certificate.private_key_pem.write_to_path(directory / "server.key")
        routes = free_ports(3)
        listed = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
        self.servers = [
            NatsServer(
                directory / f"n{number}",
                f'server_name: "n{number}"\n'
                f'tls {{ cert_file: "{directory / "server.pem"}", '
                f'key_file: "{directory / "server.key"}" }}\n'
                f'authorization {{ user: "{USER}", password: "{PASSWORD}" }}\n'
                f'cluster {{ name: "c", listen: "127.0.0.1:{port}", routes: [{listed}] }}\n',
            )
            for number, port in enumerate(routes)
        ]
        for server in self.servers:
            server.start()

    def urls(self, password: str = PASSWORD) -> list[str]:
        """Where clients connect."""
        return [f"tls://{USER}:{password}@127.0.0.1:{server.port}" for server in self.servers]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    made = SecuredCluster(tmp_path_factory.mktemp("secured"))
    yield made
    for server in made.servers:
        server.kill()


@pytest.fixture
async def bus(secured: SecuredCluster) -> AsyncIterator[Bus]:
    made = Bus(secured.urls(), stream="S", limits=THREE, ca=secured.ca)
    made.start()
    await settled(made)  # the servers have to elect who leads
    yield made
    await made.close()


async def fault_of(bus: Bus, part: str) -> str:
    """Return why a bus cannot be used, once it says ``part``."""
    bus.start()
    for _ in range(400):
        if part in bus.fault:
            break
        await asyncio.sleep(0.05)
    await bus.close()
    return bus.fault


async def test_a_stranger_and_a_wrong_password_get_no_connection_and_are_told_why(
    secured: SecuredCluster, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    mistrusted = Bus(secured.urls(), stream="S", limits=THREE, ca=stranger)
    assert "CERTIFICATE_VERIFY_FAILED" in await fault_of(mistrusted, "VERIFY")
    wrong = Bus(secured.urls("guessed"), stream="S", limits=THREE, ca=secured.ca)
    told = await fault_of(wrong, "uthorization")
    assert "uthorization" in told
    assert "guessed" not in told
    assert "guessed" not in wrong.shown


async def test_frames_survive_the_loss_of_the_server_that_leads_the_stream(
    bus: Bus, secured: SecuredCluster
) -> None:
    publisher = Publisher(bus, queue_bytes=64 * MIB, stats=BusStats())
    assert (await publisher.submit([frame(number, 1000) for number in range(20)])).accepted == 20
    info = await bus.js.stream_info("S")
    assert info.cluster is not None
    assert len(info.cluster.replicas or []) == 2
    leader = int((info.cluster.leader or "").removeprefix("n"))
    secured.servers[leader].kill()
    accepted, number = 0, 20
    while accepted < 20:  # until another one leads, as a sidecar does: again
        try:
            outcome = await publisher.submit([frame(number, 1000)])
        except BusUnavailableError:
            await asyncio.sleep(0.2)
            continue
        assert outcome.accepted + outcome.duplicate == 1
        accepted, number = accepted + 1, number + 1
    secured.servers[leader].start()
    assert (await bus.js.stream_info("S")).state.messages == 40
