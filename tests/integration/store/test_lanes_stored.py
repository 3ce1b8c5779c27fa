"""Lanes and rank windows as Grafana's SQL reads them, on both databases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Phase, Scenario, Simulated, simulate

OF_JOB = (
    "JOIN job_attempts ON job_attempts.id = attempt_id JOIN jobs ON jobs.id = job_id "
    "WHERE jobs.name = 'train' AND job_attempts.ordinal = 1"
)
SAWTOOTH = (
    "SELECT step, rank, SUM(end_wall_ns - start_wall_ns) AS arrived_to_released_ns "
    f"FROM lanes {OF_JOB} AND kind IN ('wait', 'communication') GROUP BY step, rank"
)
HEATMAP = (
    "SELECT start_wall_ns / 1000000 AS time, rank, "
    "1.0 * wait_ns / (self_ns + wait_ns + communication_ns) AS idle "
    f"FROM rank_windows {OF_JOB} ORDER BY time, rank"
)


@pytest.fixture(scope="module")
def slow_backward() -> Simulated:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=60)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


@pytest.fixture(params=["sqlite", "postgresql"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CollectorProcess]:
    url = None if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    process = CollectorProcess(tmp_path / "state", database_url=url).start()
    yield process
    assert process.stop() == 0


def test_lanes_and_windows_of_a_job_are_read_by_sql_and_stored_once_over_restarts(
    collector: CollectorProcess, slow_backward: Simulated
) -> None:
    client = collector.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    post_all(client, posted[:13])
    wait_until(lambda: collector.rows("SELECT COALESCE(MAX(step), 0) FROM lanes") >= [(120,)])
    collector.kill()
    collector.start()
    client = collector.client()
    wait_until(lambda: is_ready(client), 30)
    post_all(client, posted[13:])
    wait_for_state(client, "train", "ended", 60)
    steps = client.get_json("/v1/jobs/train/steps", limit=160)
    told = {
        (number, rank): steps["wait_ns"][place][rank] + steps["comm_ns"][place][rank]
        for place, number in enumerate(steps["steps"])
        for rank in range(4)
    }
    # The last state is written a second after it is told.
    wait_until(lambda: collector.rows("SELECT MAX(step) FROM lanes") == [(159,)])
    sawtooth = {(row[0], row[1]): int(row[2]) for row in collector.rows(SAWTOOTH)}
    assert len(sawtooth) >= 100
    assert {key: told[key] for key in sawtooth} == sawtooth
    wait_until(lambda: collector.rows("SELECT SUM(steps) FROM rank_windows") == [(640,)])
    idle = collector.rows(HEATMAP)
    assert {row[1] for row in idle} == {0, 1, 2, 3}
    by_rank = {rank: sum(float(row[2]) for row in idle if row[1] == rank) for rank in range(4)}
    assert min(by_rank, key=lambda rank: by_rank[rank]) == 2  # the others wait for it
    blamed = collector.rows("SELECT rank, SUM(blamed_wait_ns) FROM rank_windows GROUP BY rank")
    assert max(blamed, key=lambda row: row[1])[0] == 2
