from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from paceline_service.app import create_app
from paceline_service.openapi import openapi_document
from paceline_service.settings import CollectorSettings

ROUTES = {
    "/v1/frames": ["post"],
    "/v1/jobs": ["get"],
    "/v1/jobs/{job}": ["get"],
    "/v1/jobs/{job}/ranks": ["get"],
    "/v1/jobs/{job}/report": ["get"],
    "/v1/jobs/{job}/what-if": ["get"],
    "/v1/jobs/{job}/expected": ["get"],
    "/v1/jobs/{job}/steps": ["get"],
    "/v1/jobs/{job}/events": ["get"],
    "/v1/jobs/{job}/incidents": ["get"],
    "/v1/jobs/{job}/event-log": ["get"],
    "/v1/jobs/{job}/timeline": ["get"],
    "/v1/jobs/{job}/settings": ["get", "put"],
    "/v1/incidents": ["get"],
    "/v1/incidents/{incident_id}": ["get"],
    "/v1/incidents/{incident_id}/ack": ["delete", "post"],
    "/v1/incidents/{incident_id}/silence": ["delete", "post"],
    "/v1/incidents/{incident_id}/notifications": ["get"],
    "/v1/notifications": ["get"],
    "/v1/notifications/{channel}/test": ["post"],
    "/v1/silences": ["get", "post"],
    "/v1/silences/{silence_id}": ["delete"],
    "/v1/offenders": ["get"],
    "/v1/tokens": ["get", "post"],
    "/v1/tokens/{token_id}": ["delete"],
    "/v1/audit": ["get"],
    "/healthz": ["get"],
    "/readyz": ["get"],
    "/metrics": ["get"],
}
JSON_CHANGES = [(path, method) for path in ROUTES for method in ROUTES[path] if method != "get"]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    state = tmp_path_factory.mktemp("openapi")
    made = openapi_document(create_app(CollectorSettings(state_dir=state)))
    return dict(json.loads(json.dumps(made)))


def test_every_route_of_the_api_is_described(document: dict[str, Any]) -> None:
    told = {path: sorted(operations) for path, operations in document["paths"].items()}
    assert told == ROUTES


def test_the_document_is_valid_openapi_and_its_references_resolve(
    document: dict[str, Any],
) -> None:
    assert document["openapi"].startswith("3.1")
    names = set(document["components"]["schemas"])
    references = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert {name.removeprefix("#/components/schemas/") for name in references} <= names
    for schema in document["components"]["schemas"].values():
        jsonschema_rs.meta.validate(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
        )
    identities = [
        operation["operationId"]
        for operations in document["paths"].values()
        for operation in operations.values()
    ]
    assert len(set(identities)) == len(identities)


def test_path_parameters_are_declared(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            declared = {p["name"] for p in operation.get("parameters", ()) if p["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path)), path


def test_every_answer_about_a_job_names_its_problems(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        if not path.startswith("/v1/jobs"):
            continue
        responses = next(iter(operations.values()))["responses"]
        assert {"200", "401", "403", "404", "422"} <= set(responses), path
        assert "application/problem+json" in responses["404"]["content"]


def test_steps_are_asked_for_by_from_and_to(document: dict[str, Any]) -> None:
    names = {p["name"] for p in document["paths"]["/v1/jobs/{job}/steps"]["get"]["parameters"]}
    assert {"job", "attempt", "from", "to", "ranks", "limit", "phases"} <= names


def test_whatever_changes_something_needs_a_token_and_tells_what_it_refuses(
    document: dict[str, Any],
) -> None:
    for path, method in JSON_CHANGES:
        operation = document["paths"][path][method]
        assert operation["security"] == [{"token": []}], path
        if path != "/v1/frames":
            assert {"401", "403", "409", "413", "415", "422"} <= set(operation["responses"]), path


def test_lists_have_pages_and_answers_have_tags(document: dict[str, Any]) -> None:
    for path in ("/v1/jobs", "/v1/jobs/{job}/ranks", "/v1/jobs/{job}/steps", "/v1/incidents",
                 "/v1/jobs/{job}/incidents", "/v1/offenders", "/v1/silences"):  # fmt: skip
        operation = document["paths"][path]["get"]
        names = {parameter["name"] for parameter in operation["parameters"]}
        assert {"limit", "cursor", "If-None-Match"} <= names, path
        assert set(operation["responses"]["200"]["headers"]) == {"ETag", "Link"}, path
        assert "304" in operation["responses"]


def test_operations_are_named_in_words(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            assert re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"])
            assert operation["description"] or operation["summary"]


def test_posting_frames_needs_a_token_and_tells_its_limits(document: dict[str, Any]) -> None:
    operation = document["paths"]["/v1/frames"]["post"]
    assert operation["security"] == [{"token": []}]
    assert {"400", "401", "403", "413", "429", "503"} <= set(operation["responses"])


def test_changing_settings_needs_a_token_and_takes_nothing_unknown(
    document: dict[str, Any],
) -> None:
    operation = document["paths"]["/v1/jobs/{job}/settings"]["put"]
    assert operation["security"] == [{"token": []}]
    body = operation["requestBody"]["content"]["application/json"]["schema"]
    name = body["$ref"].rpartition("/")[2]
    schema = document["components"]["schemas"][name]
    assert set(schema["properties"]) == {"level", "stride", "enabled", "telemetry_interval_s"}
    assert schema["additionalProperties"] is False
    assert not schema.get("required")


def test_administrators_need_a_token(document: dict[str, Any]) -> None:
    for path in ("/v1/tokens", "/v1/tokens/{token_id}", "/v1/audit"):
        for operation in document["paths"][path].values():
            assert operation["security"] == [{"token": []}], path


def nodes(value: Any) -> Any:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from nodes(part)
    elif isinstance(value, list):
        for part in value:
            yield from nodes(part)


def test_nothing_of_this_machine_is_in_the_document(document: dict[str, Any]) -> None:
    assert str(Path.home()) not in json.dumps(document)
