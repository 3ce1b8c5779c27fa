"""Links that are cut, slow or lossy between the sidecar of a node and the collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import TOKEN, wait_until
from tests.integration.faults.network import Cable, RemoteCollector
from tests.integration.sidecar_kit import Processes

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def cable() -> Iterator[Cable]:
    """Two hosts, connected."""
    made = Cable()
    yield made
    made.close()


@pytest.fixture
def remote(cable: Cable, tmp_path: Path) -> Iterator[RemoteCollector]:
    """A collector on the other host."""
    collector = RemoteCollector(tmp_path / "state", cable).start()
    yield collector
    collector.stop()


class Node:
    """Writers and a sidecar on host ``b``."""

    def __init__(self, cable: Cable, remote: RemoteCollector, processes: Processes) -> None:
        self.log = processes.log
        self._sidecar = cable.sidecar(processes.runtime_dir, remote.url, self.log, TOKEN)
        self._remote = remote

    def records(self) -> int:
        """Return how many records are stored."""
        return int(self._remote.rows("select coalesce(sum(records), 0) from frames")[0][0])

    def end(self) -> None:
        """End the sidecar."""
        self._sidecar.terminate()
        assert self._sidecar.wait(60) == 0

    def assert_everything_is_there_once(self, total: int) -> None:
        """Every record, every frame number, once."""
        assert self.records() == total
        for rows, distinct, last in self._remote.rows(
            "select count(*), count(distinct frame_seq), max(frame_seq) from frames "
            "group by incarnation_id"
        ):
            assert rows == distinct == last + 1


@pytest.fixture
def node(cable: Cable, remote: RemoteCollector, processes: Processes) -> Iterator[Node]:
    """A node whose sidecar sends to the other host."""
    made = Node(cable, remote, processes)
    yield made
    if made._sidecar.poll() is None:
        made._sidecar.kill()
        made._sidecar.wait()


def test_a_link_that_is_cut_in_the_middle_of_a_job_costs_nothing(
    cable: Cable, node: Node, processes: Processes
) -> None:
    processes.writer(total=4000, per_s=400, end="close")
    wait_until(lambda: node.records() > 200, 30)
    cable.cut()
    # The sidecar notices by a time-out only: nobody answers, and nobody refuses.
    wait_until(lambda: "frames are kept in the spool" in node.log.read_text(), 60)
    seen = node.records()
    cable.mend()
    wait_until(lambda: node.records() == 4000, 60)
    assert seen < 4000
    assert "takes frames again" in node.log.read_text()
    node.end()
    node.assert_everything_is_there_once(4000)


def test_a_backlog_gets_through_a_link_that_takes_minutes_for_a_whole_body(
    cable: Cable, remote: RemoteCollector, node: Node, processes: Processes
) -> None:
    remote.kill()
    for rank in range(4):
        processes.writer(rank=rank, world=4, total=15_000, capacity=16384, end="close")
    wait_until(lambda: "frames are kept in the spool" in node.log.read_text(), 30)
    wait_until(lambda: not list(processes.runtime_dir.glob("*.ring")), 30)
    cable.slow("400kbit")
    port = remote.url.rpartition(":")[2]
    remote.start("--port", port)
    wait_until(lambda: node.records() > 0, 60)
    cable.slow("4mbit")
    wait_until(lambda: node.records() == 60_000, 60)
    node.end()
    node.assert_everything_is_there_once(60_000)


def test_a_link_that_loses_and_delays_packets_loses_no_record(
    cable: Cable, node: Node, processes: Processes
) -> None:
    cable.lossy(delay_ms=80, loss_percent=3)
    for rank in range(4):
        processes.writer(rank=rank, world=4, total=8000, per_s=2000, end="close")
    wait_until(lambda: node.records() == 32_000, 90)
    node.end()
    node.assert_everything_is_there_once(32_000)
    assert cable.lost_packets() > 0
