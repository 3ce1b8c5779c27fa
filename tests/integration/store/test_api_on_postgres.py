"""What people ask and say over the API, on a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.collector.traces import check_trace
from tests.simulator.job import Fault, Scenario, simulate


@pytest.fixture
def client(tmp_path: Path, postgres_url: str) -> Iterator[Client]:
    process = CollectorProcess(tmp_path / "state", database_url=postgres_url).start()
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=120, faults=(fault,), seed=15))
    with process.client() as made:
        for name in ("one", "two", "three"):
            post_all(made, bodies(job, senders(job, job=name)))
        for name in ("one", "two", "three"):
            wait_for_state(made, name, "ended", 40)
            wait_until(lambda name=name: next(made.iter_incidents(name), None))
        yield made
    assert process.stop() == 0


def test_pages_incidents_and_timelines_are_the_same_on_postgresql(client: Client) -> None:
    assert [row["job"] for row in client.iter_jobs(limit=1)] == ["three", "two", "one"]
    assert {row["job"] for row in client.iter_incidents(limit=1)} == {"one", "two", "three"}
    assert [page["steps"][0] for page in client.iter_steps("one", limit=50)] == [70, 20, 0]
    incident = next(client.iter_incidents("one"))["id"]
    client.acknowledge(incident, who="änna", note="füchse")
    client.take_back(incident)
    assert client.incident(incident)["acknowledgements"][0]["by"] == "änna"
    silence = client.silence_incident(incident, 600)
    assert [one["id"] for one in client.iter_silences(active=True)] == [silence["id"]]
    assert client.end_silence(silence["id"])["ended_by"] == "PACELINE_TOKEN"
    assert {row["node"] for row in client.iter_offenders()} == {"node-a"}
    check_trace(client.timeline("two", from_=60, to=64))
    for refused in ("/v1/jobs/a%00b", "/v1/incidents?cursor=W10", "/v1/incidents/9999"):
        with pytest.raises(ProblemError) as problem:
            client.get_json(refused)
        assert problem.value.status in (400, 404, 422)
