"""kill -9 of a collector under load, again and again."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.wire.codec import split_frames
from tests.fakes.bundles import bundled
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.faults.sending import Senders, assert_stored_once
from tests.simulator.job import Scenario, simulate

JOBS = 4
SEED = 11


@pytest.fixture(params=["sqlite", "postgresql"])
def collector(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[CollectorProcess]:
    """A collector of this test alone, on each database."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgresql" else None
    process = CollectorProcess(tmp_path / "state", database_url=url).start()
    yield process
    process.stop()


def kill_again_and_again(collector: CollectorProcess, kills: int, steps: int) -> None:
    """Kill it at moments of its load, most of them within a commit; start it; count at the end."""
    rng = random.Random(SEED)
    job = simulate(Scenario(data_parallel=4, steps=steps, seed=SEED, buckets=1))
    port = collector.url.rpartition(":")[2]
    # Every other job as sidecars of today send: bundles, large enough to have heads.
    work = [
        list(bundled(bodies(job, senders(job, job=f"job{number}"), steps_per_frame=4)))
        if number % 2
        else list(bodies(job, senders(job, job=f"job{number}"), steps_per_frame=1))
        for number in range(JOBS)
    ]
    parts = {bytes(part) for sent in work for body in sent for part in split_frames(body)}  # type: ignore[arg-type]
    unanswered = 0
    with Senders(lambda: collector.url, work) as sending:
        for _ in range(kills):
            seen = len(sending.acknowledged)
            wait_until(lambda seen=seen: len(sending.acknowledged) > seen or sending.done, 30)
            time.sleep(rng.random() * 0.1)
            collector.kill()
            stored = assert_stored_once(collector, sending.promised())
            # What is stored and was not acknowledged: the kill came between the two.
            unanswered += stored > len(sending.promised())
            if collector.database_url is None:
                assert collector.rows("PRAGMA integrity_check") == [("ok",)]
            collector.start("--port", port)
        sending.join(60)
        assert sending.done
    stored = assert_stored_once(collector, sending.promised())
    assert stored == len(sending.promised()) == len(parts)
    assert collector.rows("SELECT count(*) FROM frames WHERE head_id IS NOT NULL") > [(0,)]
    for number in range(JOBS):
        row = wait_for_state(collector.client(), f"job{number}", "ended", 40)
        assert row["steps"] == steps
    for number in range(JOBS):  # whoever did not get the answer sends again
        answer = collector.client().post_frames(work[number][-1])
        sent = len(list(split_frames(work[number][-1])))
        assert (answer["accepted"], answer["duplicate"]) == (0, sent)


@pytest.mark.timeout(180)
def test_whatever_was_acknowledged_is_there_once_however_often_the_collector_is_killed(
    collector: CollectorProcess,
) -> None:
    kill_again_and_again(collector, kills=3, steps=90)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_kills(collector: CollectorProcess) -> None:
    kill_again_and_again(collector, kills=60, steps=1500)
