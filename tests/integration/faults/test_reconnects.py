"""Every node of a large cluster connects again at the same moment, as after an outage."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paceline.ranks import format_ranks
from paceline.wire.codec import encode_frame, encode_rows
from paceline.wire.frames import Frame, GroupDef
from tests.integration.collector.kit import TOKEN, CollectorProcess, is_ready, wait_until

AT_LEAST = 2_500
WANTED = 10_000
SPARE_FILES = 300
ROUNDS = 60


@pytest.fixture
def connections() -> int:
    """How many connections this process may open; its limit is raised as far as it goes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED + SPARE_FILES
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    if limit < AT_LEAST + SPARE_FILES:
        pytest.skip(f"only {limit} open files are allowed (ulimit -Hn): {AT_LEAST} are needed")
    return limit - SPARE_FILES


def frame(rank: int, world_size: int) -> bytes:
    """Return one frame of one rank, small, as after an outage of an idle cluster."""
    row = (1, 1, 0, 0, 0, -1, 4096, 10**12 + rank, 10**12 + 10**6, 10**12 + 1000, 10**12 - 1000, 0)
    group = GroupDef(index=0, name="dp", ranks=format_ranks(range(world_size)))
    return encode_frame(
        Frame(
            job="cluster", run_id="r", attempt=0, rank=rank, world_size=world_size,
            incarnation=f"{rank:032x}", frame_seq=0, node=f"node{rank // 8}", producer="python",
            count=1, columns=encode_rows([row]), groups=[group],
        )
    )  # fmt: skip


class Crowd:
    """Lets nobody go on before everybody is there."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._complete = asyncio.Event()

    async def wait(self) -> None:
        """Be there, and wait for the others."""
        self._missing -= 1
        if not self._missing:
            self._complete.set()
        await self._complete.wait()


async def post(host: str, port: int, body: bytes, connected: Crowd) -> list[str]:
    """Connect, wait for the others, post until it is taken; return what went wrong on the way."""
    head = (
        f"POST /v1/frames HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    trouble: list[str] = []
    waited = False
    for number in range(ROUNDS):
        writer = None
        try:
            reader, writer = await asyncio.open_connection(host, port)
            if not waited:
                waited = True
                await connected.wait()  # nobody sends before everybody is connected
            writer.write(head + body)
            status = await asyncio.wait_for(reader.readline(), 60)
            if b" 200 " in status:
                return trouble
            trouble.append(status.decode().strip())
            assert b" 429 " in status or b" 503 " in status, status
        except (OSError, TimeoutError) as error:
            trouble.append(type(error).__name__)
        finally:
            if not waited:
                waited = True
                await connected.wait()
            if writer is not None:
                writer.close()
        await asyncio.sleep(0.1 * (number + 1))
    raise AssertionError(f"never taken: {trouble[-3:]}")


def connect_at_once(collector: CollectorProcess, connections: int) -> None:
    """Let so many nodes post at once, and count."""
    address = urlsplit(collector.url)
    frames = [frame(rank, connections) for rank in range(connections)]

    async def everybody() -> None:
        crowd = Crowd(connections)
        host, port = str(address.hostname), int(address.port or 0)
        await asyncio.gather(*(post(host, port, body, crowd) for body in frames))

    asyncio.run(everybody())
    stored = "SELECT count(*), count(DISTINCT incarnation_id) FROM frames"
    assert collector.rows(stored) == [(connections, connections)]
    wait_until(lambda: is_ready(collector.client()), 60)
    # Whoever has gone holds nothing any more.
    assert collector.process is not None
    descriptors = Path(f"/proc/{collector.process.pid}/fd")
    wait_until(lambda: len(list(descriptors.iterdir())) < SPARE_FILES, 30)


@pytest.mark.timeout(180)
def test_thousands_of_nodes_that_connect_at_once_all_get_their_frames_stored(
    collector: CollectorProcess, connections: int
) -> None:
    connect_at_once(collector, min(connections, AT_LEAST))


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_ten_thousand_nodes_that_connect_at_once(
    collector: CollectorProcess, connections: int
) -> None:
    connect_at_once(collector, connections)
