from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import CollectorProcess, bodies, senders
from tests.integration.postgres import PostgresServer
from tests.integration.scaleout.credentials import Authority
from tests.integration.scaleout.kit import Cluster, ended_report, send
from tests.integration.scaleout.nats import NatsServer
from tests.simulator.job import Fault, Scenario, Simulated, simulate

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test starts a dozen processes; on a busy machine they take their time."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="package")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[Cluster]:
    """Two gateways and two analyzers; a test that ends one of them starts it again."""
    directory = tmp_path_factory.mktemp("scaleout")
    authority = Authority()
    nats = NatsServer(directory / "nats", authority.config).start()
    name = f"scaleout{os.getpid()}"
    made = Cluster(directory, nats, postgres.create(name), authority)
    try:
        yield made.start()
    finally:
        made.stop()
        nats.kill()
        postgres.drop(name)


@pytest.fixture(scope="package")
def slow() -> Simulated:
    """Four ranks; rank 2 is slow in backward from step 60 on."""
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture(scope="package")
def expected(tmp_path_factory: pytest.TempPathFactory, slow: Simulated) -> dict[str, Any]:
    """What one uninterrupted process says about the same frames, without the job's name."""
    process = CollectorProcess(tmp_path_factory.mktemp("single") / "state").start()
    try:
        send(process.client(), bodies(slow, senders(slow, job="alone")))
        return without_name(ended_report(process.client(), "alone"))
    finally:
        assert process.stop() == 0


def without_name(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report that can be compared with that of another job."""
    return {**report, "job": {**report["job"], "name": ""}}
