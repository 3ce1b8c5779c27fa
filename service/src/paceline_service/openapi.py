"""The OpenAPI document: FastAPI's, with the hot route that FastAPI does not know of."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from paceline.settings import LEVELS
from paceline.wire.codec import CONTENT_TYPE
from paceline_service import report_schema
from paceline_service.errors import PROBLEM_MEDIA_TYPE, Problem
from paceline_service.jobs import schemas as job_schemas

_REJECTED = {
    "type": "object",
    "required": ["offset", "reason"],
    "properties": {
        "offset": {"type": "integer"},
        "reason": {"type": "string"},
        "problem": {
            "type": "string",
            "enum": ["forbidden"],
            "description": "Only where another token could send the frame: keep it.",
        },
    },
}
_SETTINGS = {
    "type": "object",
    "required": [
        "job", "run_id", "attempt", "generation", "effective_step", "level", "stride",
        "telemetry_interval_s",
    ],
    "properties": {
        "job": {"type": "string"},
        "run_id": {"type": "string"},
        "attempt": {"type": "integer", "minimum": 0},
        "generation": {"type": "integer", "minimum": 1},
        "effective_step": {"type": "integer", "minimum": 0},
        "level": {"type": "string", "enum": list(LEVELS)},
        "stride": {"type": "integer", "minimum": 1},
        "telemetry_interval_s": {"type": ["number", "null"]},
    },
}  # fmt: skip
_ANSWER = {
    "type": "object",
    "required": ["accepted", "duplicate", "rejected", "settings"],
    "properties": {
        "accepted": {"type": "integer", "minimum": 0},
        "duplicate": {"type": "integer", "minimum": 0},
        "rejected": {"type": "array", "items": _REJECTED},
        "settings": {
            "type": "array",
            "description": "What launches of the body are to record from a step on "
            "(docs/control.md); empty where nobody asked for anything.",
            "items": _SETTINGS,
        },
    },
}
_FAULTS = {
    "400": "No frame of the body can be decoded: drop it, do not send it again.",
    "401": "No token, or an unknown one.",
    "403": "The token lacks the scope ingest, or its prefix covers no job of the body.",
    "413": "The body, or what its frames promise to unpack to, is too large.",
    "421": "The Host header is not a name of this collector.",
    "429": "Too much is waiting: keep the frames, send them again after Retry-After seconds.",
    "503": "The database takes no writes: keep the frames, send them again.",
}


_NOTHING_NEW = {"description": "Nothing has changed since the answer that had this tag."}
_TAG = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`ETag` of an earlier answer.",
}
_TAG_TOLD = {"description": "Of these bytes.", "schema": {"type": "string"}}
_LINK_TOLD = {
    "description": 'The next page: `<...>; rel="next"`; absent on the last one.',
    "schema": {"type": "string"},
}
_TAGGED = ("/v1/jobs", "/v1/incidents", "/v1/notifications", "/v1/offenders", "/v1/silences")
_UNTAGGED = {"events", "event-log", "timeline", "settings"}
"""Routes of jobs whose answers have no tag: they stream, or change at every frame."""


def openapi_document(app: FastAPI) -> dict[str, Any]:
    """Return the document; made once per application."""
    if app.openapi_schema:
        return app.openapi_schema
    document = get_openapi(
        title=app.title,
        version=app.version,
        description="Frames in, answers out. Errors are application/problem+json; `type` is "
        "stable. Reads are open on a loopback address and need the scope `read` elsewhere; "
        "writes always need a token.",
        routes=app.routes,
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= problem.pop("$defs", {}) | {"Problem": problem}
    # FastAPI leaves out what is null in examples, and null is an answer here.
    schemas["Finding"]["examples"] = [report_schema.EXAMPLE]
    schemas["JobRow"]["examples"] = [job_schemas.EXAMPLE]
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["paths"]["/v1/frames"] = {"post": _frames_operation()}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            _complete(path, method, operation)
    app.openapi_schema = document
    return document


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add what FastAPI does not know: names, tokens, tags."""
    generated = operation["operationId"]
    tail = f"_{re.sub(r'[^A-Za-z0-9]', '_', path.lstrip('/'))}_{method}"
    operation["operationId"] = generated.removesuffix(tail).removesuffix("__").rstrip("_")
    if path.startswith("/v1/") or path == "/metrics":
        closed = method != "get" or path.startswith(("/v1/tokens", "/v1/audit"))
        operation["security"] = [{"token": []}] if closed else [{}, {"token": []}]
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    too_large = "Request line and headers together are too large."
    operation["responses"]["431"] = {"description": too_large, "content": content}
    operation["responses"]["421"] = {"description": _FAULTS["421"], "content": content}
    if path == "/metrics":
        for status in ("401", "403", "429", "503"):
            operation["responses"][status] = {"description": _FAULTS[status], "content": content}
    tagged = path.startswith(_TAGGED)
    if method == "get" and tagged and path.rpartition("/")[2] not in _UNTAGGED:
        operation["responses"]["304"] = _NOTHING_NEW
        operation.setdefault("parameters", []).append(_TAG)
        told = operation["responses"]["200"].setdefault("headers", {})
        told["ETag"] = _TAG_TOLD
        if any(parameter["name"] == "cursor" for parameter in operation["parameters"]):
            told["Link"] = _LINK_TOLD


def _frames_operation() -> dict[str, Any]:
    problem = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    responses: dict[str, Any] = {
        "200": {
            "description": "Every accepted frame is durable.",
            "content": {"application/json": {"schema": _ANSWER}},
        }
    }
    for status, text in _FAULTS.items():
        responses[status] = {"description": text, "content": problem}
    return {
        "tags": ["ingest"],
        "summary": "Post frames",
        "description": "The body is frames of wire v1 back to back (docs/wire.md), at most 8 MiB. "
        "A frame that was stored before counts as duplicate. Rejected frames must be dropped and "
        "counted by the sender, not sent again.",
        "operationId": "post_frames",
        "security": [{"token": []}],
        "requestBody": {
            "required": True,
            "content": {CONTENT_TYPE: {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": responses,
    }
