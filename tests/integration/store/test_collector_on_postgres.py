"""The collector does on a real PostgreSQL what it does on SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Phase, Scenario, Simulated, simulate


@pytest.fixture(scope="session")
def slow_backward() -> Simulated:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture
def collector(tmp_path: Path, postgres_url: str) -> Iterator[CollectorProcess]:
    process = CollectorProcess(tmp_path / "state", database_url=postgres_url).start()
    yield process
    assert process.stop() == 0


def test_frames_are_stored_once_and_analysed(
    collector: CollectorProcess, slow_backward: Simulated
) -> None:
    client = collector.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    assert post_all(client, posted) == 64
    assert [client.post_frames(body)["duplicate"] for body in posted] == [4] * 16
    row = wait_for_state(client, "train", "ended")
    assert row["verdict"] == "straggler"
    assert collector.rows("SELECT count(*) FROM frames") == [(64,)]
    wait_until(lambda: client.get_json("/v1/jobs/train/incidents")["incidents"])
