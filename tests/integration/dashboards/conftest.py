"""One recording for all tests of dashboards: a collector on PostgreSQL, and a Prometheus."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.integration.collector.kit import CollectorProcess, wait_until
from tests.integration.dashboards.grafana import View
from tests.integration.dashboards.jobs import all_jobs
from tests.integration.dashboards.recording import Prometheus, Recording, prometheus_over, record
from tests.integration.postgres import PostgresServer

STEPS = 140
RECORDED_S = 140


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """Jobs as a collector told of them."""

    recording: Recording
    prometheus: Prometheus
    database_url: str

    def view(self, job: str, **values: str) -> View:
        """Return the whole time, of one job, with everything chosen."""
        chosen = {"job": job, "rank": ".*", "node": ".*", "group": ".*", **values}
        # Incidents are opened when they are found: by the clock of the collector.
        return View(from_s=self.recording.began_s, to_s=self.recording.ended_s, values=chosen)


@pytest.fixture(scope="session")
def recorded(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[Recorded]:
    directory = tmp_path_factory.mktemp("dashboards")
    url = postgres.create("dashboards")
    collector = CollectorProcess(directory / "state", database_url=url).start()
    began_s = float(int(time.time()) - RECORDED_S)
    try:
        jobs = all_jobs(STEPS, int(began_s * 1e9))
        recording = record(collector, jobs, began_s, RECORDED_S)
        wait_until(lambda: collector.rows("SELECT MAX(step) FROM lanes")[0][0] > STEPS * 0.6, 30)
        wait_until(lambda: collector.rows("SELECT count(*) FROM incidents")[0][0] >= 2, 30)
    finally:
        assert collector.stop() == 0
    with prometheus_over(recording, directory) as prometheus:
        yield Recorded(recording=recording, prometheus=prometheus, database_url=url)
    postgres.drop("dashboards")
