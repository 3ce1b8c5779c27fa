"""The collector does on a real PostgreSQL what it does on SQLite."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.errors import TransportError
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.postgres import PostgresServer
from tests.simulator.job import Fault, Phase, Scenario, Simulated, simulate


@pytest.fixture(scope="module")
def slow_backward() -> Simulated:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture
def collector(tmp_path: Path, postgres_url: str) -> Iterator[CollectorProcess]:
    process = CollectorProcess(tmp_path / "state", database_url=postgres_url).start()
    yield process
    assert process.stop() == 0


def test_frames_are_stored_once_analysed_and_the_same_after_kill_9(
    collector: CollectorProcess, slow_backward: Simulated
) -> None:
    client = collector.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    assert post_all(client, posted[:13]) == 52
    collector.kill()
    assert collector.rows("SELECT count(*) FROM frames") == [(52,)]
    collector.start()
    client = collector.client()
    assert [client.post_frames(body)["duplicate"] for body in posted[:13]] == [4] * 13
    wait_until(lambda: is_ready(client), 30)
    assert post_all(client, posted[13:]) == 12
    row = wait_for_state(client, "train", "ended", 60)
    assert row["verdict"] == "straggler"
    wait_until(lambda: client.get_json("/v1/jobs/train/incidents")["incidents"])
    told = client.report("train"), client.get_json("/v1/jobs/train/steps", phases=1, limit=160)
    assert len(told[1]["steps"]) == 160
    assert collector.stop() == 0
    collector.start()
    client = collector.client()
    again = client.report("train"), client.get_json("/v1/jobs/train/steps", phases=1, limit=160)
    assert again == told
    stored = collector.rows(
        "SELECT count(*), count(DISTINCT (incarnation_id, frame_seq)) FROM frames"
    )
    assert stored == [(64, 64)]


def test_a_second_collector_is_refused_with_the_remedy(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    other = CollectorProcess(tmp_path / "other", database_url=collector.database_url)
    done = subprocess.run(
        other.command(), env=other.environ(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "another collector uses" in done.stderr
    assert "--database" in done.stderr
    assert collector.client().get_json("/readyz")["ready"]


def test_while_the_server_is_away_nothing_is_acknowledged_and_then_all_goes_on(
    collector: CollectorProcess, slow_backward: Simulated, postgres: PostgresServer
) -> None:
    client = collector.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    post_all(client, posted[:8])
    postgres.kill()
    try:
        with pytest.raises(TransportError, match="503"):
            client.post_frames(posted[8])
        assert not is_ready(client)
    finally:
        postgres.start()
    wait_until(lambda: not _refused(collector, posted[8]), 30)
    post_all(client, posted[9:])
    row = wait_for_state(client, "train", "ended", 60)
    assert row["verdict"] == "straggler"
    assert row["steps"] == 160
    assert collector.rows("SELECT count(*) FROM frames") == [(64,)]


def _refused(collector: CollectorProcess, body: bytes) -> bool:
    try:
        collector.client().post_frames(body)
    except TransportError:
        return True
    return False
