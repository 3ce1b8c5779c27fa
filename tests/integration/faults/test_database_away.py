"""PostgreSQL goes away while ranks send, for seconds or a minute, and comes back."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import (
    STORED,
    TOKEN,
    CollectorProcess,
    bodies,
    is_ready,
    senders,
    stored_frames,
    wait_for_state,
    wait_until,
)
from tests.integration.faults.sending import Senders
from tests.integration.postgres import PostgresServer, rows
from tests.integration.sidecar_kit import Processes
from tests.simulator.job import Scenario, simulate

STEPS = 200


@pytest.fixture
def served(tmp_path: Path, postgres_url: str) -> Iterator[CollectorProcess]:
    """A collector on PostgreSQL."""
    collector = CollectorProcess(tmp_path / "state", PACELINE_SERVE_DATABASE=postgres_url).start()
    yield collector
    collector.stop()


@pytest.fixture
def server(postgres: PostgresServer) -> Iterator[PostgresServer]:
    """The server, which runs again in the end whatever a test did to it."""
    yield postgres
    if not (postgres.data / "postmaster.pid").exists():
        postgres.start()


def away(
    served: CollectorProcess, server: PostgresServer, url: str, processes: Processes, for_s: float
) -> None:
    """Let the server crash under load, wait, and count when it is back."""
    job = simulate(Scenario(data_parallel=4, steps=STEPS, seed=2, buckets=1))
    work = [list(bodies(job, senders(job, job=f"job{n}"), steps_per_frame=2)) for n in range(2)]
    processes.sidecar("--url", served.url, PACELINE_TOKEN=TOKEN)
    processes.writer(total=3000, per_s=150, end="close")
    with Senders(lambda: served.url, work) as sending:
        wait_until(lambda: len(sending.acknowledged) > 20, 30)
        server.kill()
        wait_until(lambda: sending.problems, 30)
        problem = sending.problems[-1]
        assert problem.status == 503
        assert problem.retry_after_s
        assert "keep them and send them again" in str(problem)
        wait_until(lambda: not is_ready(served.client()), 30)
        with urllib.request.urlopen(f"{served.url}/metrics", timeout=20) as scraped:
            assert b"\npaceline_ingest_commit_failures_total " in scraped.read()
        assert served.process is not None
        assert served.process.poll() is None
        time.sleep(for_s)
        server.start()
        sending.join(60)
        assert sending.done
    wait_until(lambda: is_ready(served.client()), 30)
    assert served.process.poll() is None
    total = 2 * 4 * STEPS // 2
    query = (
        "SELECT count(*), count(DISTINCT (f.incarnation_id, f.frame_seq)) FROM frames f "
        "JOIN job_attempts a ON a.id = f.attempt_id JOIN jobs j ON j.id = a.job_id "
        "WHERE j.name LIKE 'job_'"
    )
    assert rows(url, query) == [(total, total)]
    assert {body for body, _ in stored_frames(rows(url, STORED))} >= sending.promised()
    for number in range(2):
        assert wait_for_state(served.client(), f"job{number}", "ended", 40)["steps"] == STEPS
    records = (
        "SELECT coalesce(sum(f.records), 0)::int FROM frames f JOIN job_attempts a ON "
        "a.id = f.attempt_id JOIN jobs j ON j.id = a.job_id WHERE j.name = 'job-a'"
    )
    wait_until(lambda: rows(url, records) == [(3000,)], 60)
    # What is written behind the frames (steps, states) is there as well.
    steps = "SELECT count(*) FROM step_summaries"
    wait_until(lambda: rows(url, steps)[0][0] >= 2 * STEPS, 30)


@pytest.mark.timeout(150)
def test_a_database_that_crashes_for_seconds_costs_nothing(
    served: CollectorProcess, server: PostgresServer, postgres_url: str, processes: Processes
) -> None:
    away(served, server, postgres_url, processes, 3)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_database_that_is_gone_for_a_minute_costs_nothing(
    served: CollectorProcess, server: PostgresServer, postgres_url: str, processes: Processes
) -> None:
    away(served, server, postgres_url, processes, 60)
