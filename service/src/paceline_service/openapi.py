"""The OpenAPI document: FastAPI's, with the hot route that FastAPI does not know of."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from paceline.settings import LEVELS
from paceline.wire.codec import CONTENT_TYPE
from paceline_service.errors import PROBLEM_MEDIA_TYPE, Problem

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
    components.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
    components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["paths"]["/v1/frames"] = {"post": _frames_operation()}
    for path, operations in document["paths"].items():
        if path.startswith(("/v1/tokens", "/v1/audit")):
            for operation in operations.values():
                operation["security"] = [{"token": []}]
        if path.startswith("/v1/jobs") or path == "/metrics":
            for method, operation in operations.items():
                operation["security"] = [{"token": []}] if method == "put" else [{}, {"token": []}]
    app.openapi_schema = document
    return document


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
