"""A verdict about a real job: what runs beside it on the machine would be measured, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.test_faults import RANKS, TIMEOUT_S, collector, run_job
from tests.integration.collector.kit import CollectorProcess, wait_until

__all__ = ["collector"]
pytestmark = pytest.mark.timeout(TIMEOUT_S + 20)


def test_a_rank_that_joins_late_is_waited_for_and_blames_nobody_afterwards(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    done = run_job(tmp_path, collector.url, STEPS="120", WOUND="late:1")
    assert done.returncode == 0, done.stderr
    wait_until(lambda: collector.client().get_json("/v1/jobs/steady")["steps"] == 120, 20)
    report = collector.client().get_json("/v1/jobs/steady/report")
    assert report["job"]["ranks_observed"] == RANKS
    assert report["verdict"] == "healthy"
    assert report["data"]["complete"]
