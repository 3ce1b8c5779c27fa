"""Mutated frames (``tests/fuzz``) to a real collector: stored, analysed, told; it stays well."""

from __future__ import annotations

import http.client
import random
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paceline.vocabulary import Phase
from paceline_service.client import ProblemError
from tests.fuzz.targets import frames
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Fault, Scenario, simulate

TROUBLE = re.compile(r".*(?:failed|Traceback|level=error|\[error).*")


def ask_everything(collector: CollectorProcess, jobs: list[str]) -> None:
    """Ask every question about these jobs that has an end: each has an answer, or a problem."""
    host = urlsplit(collector.url).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    paths = collector.client().get_json("/openapi.json")["paths"]
    questions = [
        path for path, methods in paths.items()
        if "get" in methods and path.count("{") == 1 and "{job}" in path
        and not path.endswith("/events")
    ]  # fmt: skip
    assert len(questions) >= 6
    for job in jobs:
        for path in questions:
            connection.request("GET", path.replace("{job}", job))
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status in (200, 404, 422), (path, job, answer.status, body[:500])
    connection.close()


def send_mutated(collector: CollectorProcess, jobs: int) -> None:
    """Post so many jobs, each with some of its frames mutated, and a good one at the end."""
    rng = random.Random(3)
    fault = Fault(rank=1, phase=Phase.BACKWARD, extra_ms=30, first=4)
    job = simulate(Scenario(data_parallel=3, steps=8, faults=(fault,), seed=3, buckets=1))
    client = collector.client()
    for number in range(jobs):
        body = b"".join(bodies(job, senders(job, job=f"mutated{number}"), steps_per_frame=4))
        for _ in range(rng.randrange(1, 5)):
            body = frames.mutate(body, rng)
        try:
            client.post_frames(body)
        except ProblemError as error:
            if error.status not in (400, 413):
                raise
    good = simulate(Scenario(steps=60, seed=5))
    post_all(client, bodies(good, senders(good, job="good")))
    assert wait_for_state(client, "good", "ended", 60 + jobs)["steps"] == 60
    assert is_ready(client)
    listed = [row["job"] for row in client.get_json("/v1/jobs?limit=500")["jobs"]]
    assert len(listed) > min(jobs // 2, 400)
    ask_everything(collector, listed[:: max(len(listed) // 40, 1)])
    text = b"".join(client.stream("/metrics")).decode()
    assert not re.search(r"^[^#\n]* (?:nan|[+-]inf)$", text, re.IGNORECASE | re.MULTILINE)
    assert collector.stop() == 0  # whatever is still to be written is written
    told = [line for line in collector.log.read_text().splitlines() if TROUBLE.match(line)]
    assert not told, "\n".join(line[:600] for line in told[:10])
    collector.start()
    wait_until(lambda: is_ready(collector.client()), 120)
    told = [line for line in collector.log.read_text().splitlines() if TROUBLE.match(line)]
    assert not told, "\n".join(line[:600] for line in told[:10])


@pytest.mark.timeout(200)
def test_mutated_frames_leave_the_collector_well_and_other_jobs_alone(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    send_mutated(collector, 120)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_many_more_mutated_frames(collector: CollectorProcess, tmp_path: Path) -> None:
    send_mutated(collector, 1000)
