"""Settings and a collector that is away: it must be back before the ranks reach the agreed step."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.test_control import (
    JOBS,
    PATIENCE_S,
    Job,
    agreed,
    collector,
    followed,
    jobs,
    kept_steps,
    shown,
    wait_for_job,
)
from tests.integration.collector.kit import CollectorProcess, wait_until

__all__ = ["collector", "jobs"]
pytestmark = pytest.mark.timeout(300)


def test_a_collector_that_is_killed_tells_the_same_step_and_a_new_attempt_gets_its_own(
    collector: CollectorProcess, tmp_path: Path, jobs: list[Job]
) -> None:
    port = collector.url.rpartition(":")[2]
    jobs.append(job := Job(tmp_path, collector.url, sys.executable, str(JOBS / "launcher.py")))
    wait_for_job(collector)
    job.settings("--stride", "4")
    step = agreed(collector)
    collector.kill()
    collector.start("--port", port)
    assert shown(collector)["effective_step"] == step
    followed(collector, "0-1")
    job.die_file.touch()
    wait_until(lambda: shown(collector)["attempt"] == 2, PATIENCE_S)
    second = agreed(collector, attempt=2)
    followed(collector, "0-1")

    def went_on() -> bool:
        return max(step for step, whole in kept_steps(collector, 2)[0].items() if whole) > second

    wait_until(went_on, PATIENCE_S)
    job.finish()
    wait_until(lambda: collector.client().get_json("/v1/jobs/long")["state"] == "ended", 30)
    for attempt, since in ((1, step), (2, second)):
        steps = kept_steps(collector, attempt)
        assert steps[0] == steps[1]
        whole = sorted(step for step, is_whole in steps[0].items() if is_whole)
        assert whole == [*range(since), *range(-(-since // 4) * 4, max(steps[0]) + 1, 4)]
        assert max(whole) > since
