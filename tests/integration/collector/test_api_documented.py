"""What the collector answers is what its OpenAPI document says."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest

from paceline.vocabulary import Phase
from paceline_service.client import Client
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.collector.test_api_pages import ask
from tests.simulator.job import Fault, Scenario, simulate

JOB = "documented"


@pytest.fixture(scope="module")
def told(shared: CollectorProcess) -> Client:
    """A collector with a job that has an incident, acknowledged and silenced."""
    fault = Fault(rank=1, phase=Phase.INPUT, extra_ms=20, first=40)
    job = simulate(Scenario(steps=120, faults=(fault,), seed=13))
    client = shared.client()
    post_all(client, bodies(job, senders(job, job=JOB)))
    wait_for_state(client, JOB, "ended")
    found = wait_until(lambda: client.get_json(f"/v1/jobs/{JOB}/incidents")["incidents"])
    path = f"/v1/incidents/{found[0]['id']}"
    client.post_json(f"{path}/ack", {"who": "ana"})
    client.post_json(f"{path}/silence", {"for_s": 600})
    client.post_json("/v1/tokens", {"scopes": ["read"]})
    return client


@pytest.fixture(scope="module")
def document(shared: CollectorProcess) -> dict[str, Any]:
    return dict(shared.client().get_json("/openapi.json"))


GETS = [
    ("/v1/jobs", ""),
    ("/v1/jobs/{job}", ""),
    ("/v1/jobs/{job}/ranks", ""),
    ("/v1/jobs/{job}/report", ""),
    ("/v1/jobs/{job}/what-if", "without=rank:1"),
    ("/v1/jobs/{job}/expected", "parameters=66e6&tokens_per_step=4096"),
    ("/v1/jobs/{job}/steps", "phases=1&limit=3"),
    ("/v1/jobs/{job}/incidents", ""),
    ("/v1/jobs/{job}/settings", ""),
    ("/v1/jobs/{job}/timeline", "limit=2"),
    ("/v1/incidents", ""),
    ("/v1/incidents/{incident_id}", ""),
    ("/v1/incidents/{incident_id}/notifications", ""),
    ("/v1/notifications", ""),
    ("/v1/silences", ""),
    ("/v1/offenders", ""),
    ("/v1/tokens", ""),
    ("/v1/audit", ""),
    ("/healthz", ""),
    ("/readyz", ""),
]


def validator(document: dict[str, Any], schema: dict[str, Any]) -> jsonschema_rs.Validator:
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    text = json.dumps({**whole, "components": document["components"]})
    return jsonschema_rs.validator_for(json.loads(text))


@pytest.mark.parametrize(("path", "query"), GETS, ids=[path for path, _ in GETS])
def test_an_answer_is_as_the_document_describes_it(
    told: Client, shared: CollectorProcess, document: dict[str, Any], path: str, query: str
) -> None:
    incident = told.get_json("/v1/incidents", limit=1)["incidents"][0]["id"]
    target = path.replace("{job}", JOB).replace("{incident_id}", str(incident))
    status, headers, body = ask(shared, target + (f"?{query}" if query else ""))
    assert status == 200, body
    responses = document["paths"][path]["get"]["responses"]
    assert ("etag" in headers) is ("304" in responses)
    described = responses["200"]
    schema = described["content"]["application/json"]["schema"]
    answer = json.loads(body)
    validator(document, schema).validate(answer)
    assert not unknown(document, schema, answer), "what is answered is described"
    for name in described.get("headers", {}):
        assert name == "Link" or name.lower() in headers


def unknown(document: dict[str, Any], schema: dict[str, Any], answer: Any) -> set[str]:
    """Return the keys of an object of ``answer`` that its schema does not name."""
    while "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    if isinstance(answer, list) and "items" in schema:
        return set().union(*(unknown(document, schema["items"], one) for one in answer[:20]))
    if not isinstance(answer, dict) or "properties" not in schema:
        return set()
    extra = set(answer) - set(schema["properties"])
    for name, part in schema["properties"].items():
        extra |= unknown(document, part, answer.get(name))
    return extra


def test_every_route_that_gives_json_is_looked_at(document: dict[str, Any]) -> None:
    given = {
        path
        for path, operations in document["paths"].items()
        if "application/json"
        in operations.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    }
    assert given == {path for path, _ in GETS}


def test_the_examples_are_what_they_are_examples_of(document: dict[str, Any]) -> None:
    seen = 0
    for name, schema in document["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            validator(document, {"$ref": f"#/components/schemas/{name}"}).validate(example)
            seen += 1
    assert seen >= 5


def test_every_problem_is_as_the_document_describes_it(
    told: Client, shared: CollectorProcess, document: dict[str, Any]
) -> None:
    check = validator(document, {"$ref": "#/components/schemas/Problem"})
    for target in ("/v1/jobs?limit=0", "/v1/jobs/none", "/v1/jobs?cursor=x", "/nowhere"):
        status, _, body = ask(shared, target)
        assert status >= 400
        check.validate(json.loads(body))
