"""A collector that cannot keep up asks a real job for fewer steps, and nothing is lost by it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline_service.client import ProblemError
from tests.e2e.test_control import (
    Job,
    agreed,
    followed,
    kept_steps,
    shown,
    torchrun,
    wait_for_job,
)
from tests.integration.collector.kit import CollectorProcess, bodies, senders, wait_until
from tests.simulator.job import Scenario, Simulated, simulate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
FLOODERS = 8
PATIENCE_S = 240
"""Half a minute of strain, a change that is agreed within 40 s, and a machine with other work."""


@pytest.fixture
def overloaded(tmp_path: Path) -> Iterator[CollectorProcess]:
    """A collector whose queue holds one request."""
    process = CollectorProcess(tmp_path / "state", PACELINE_SERVE_QUEUE_BYTES="4096").start()
    yield process
    assert process.stop() == 0


class Flood:
    """Simulated jobs of a former agent, which cannot be asked for anything, one after the other."""

    def __init__(self, collector: CollectorProcess) -> None:
        self.refused = 0
        self._collector = collector
        self._over = threading.Event()
        simulated = simulate(Scenario(steps=60, seed=1))
        self._threads = [
            threading.Thread(target=self._pour, args=(number, simulated))
            for number in range(FLOODERS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _pour(self, number: int, simulated: Simulated) -> None:
        again = 0
        with self._collector.client() as client:
            while not self._over.is_set():
                again += 1
                for body in bodies(simulated, senders(simulated, job=f"flood{number}-{again}")):
                    while not self._over.is_set():
                        try:
                            client.post_frames(body)
                            break
                        except ProblemError as error:
                            if error.status != 429:
                                raise
                            self.refused += 1
                            time.sleep(0.05)


def test_a_job_keeps_fewer_steps_while_the_collector_is_overloaded(
    overloaded: CollectorProcess, tmp_path: Path
) -> None:
    job = Job(tmp_path, overloaded.url, *torchrun(2))
    flood = None
    try:
        wait_for_job(overloaded)
        assert shown(overloaded)["relief_stride"] == 1
        flood = Flood(overloaded)
        wait_until(lambda: shown(overloaded)["relief_stride"] == 2, PATIENCE_S)
        assert flood.refused > 0
        flood.stop()
        step = agreed(overloaded)
        followed(overloaded, "0-1")
        assert shown(overloaded)["stride"] == 1, "what somebody asked for is left alone"
        wait_until(lambda: max(kept_steps(overloaded)[0]) > step + 50, PATIENCE_S)
        job.finish()
    finally:
        if flood is not None:
            flood.stop()
        job.close()
    wait_until(lambda: overloaded.client().get_json("/v1/jobs/long")["state"] == "ended", 60)
    steps = kept_steps(overloaded)
    assert steps[0] == steps[1], "all ranks keep the same steps"
    whole = sorted(number for number, kept in steps[0].items() if kept)
    assert whole == [*range(step), *range(step + step % 2, max(steps[0]) + 1, 2)]
    assert overloaded.client().report("long")["data"]["complete"]
