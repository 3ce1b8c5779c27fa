from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import CollectorProcess
from tests.simulator.job import Fault, Scenario, Simulated, simulate


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[CollectorProcess]:
    """A collector of this test alone."""
    process = CollectorProcess(tmp_path / "state").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector for tests that do not mind each other's jobs."""
    process = CollectorProcess(tmp_path_factory.mktemp("collector") / "state").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="session")
def slow_backward() -> Simulated:
    """Four ranks; rank 2 is slow in backward from step 60 on."""
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture(scope="session")
def healthy() -> Simulated:
    """Four ranks, all well."""
    return simulate(Scenario(steps=60, seed=5))
