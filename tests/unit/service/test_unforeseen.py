"""An error that nobody foresaw is told as any other, and its lines in the log can be found."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paceline_service.app import create_app
from paceline_service.logs import configure_logging
from paceline_service.settings import CollectorSettings


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def broken(_request: Request) -> Response:
    raise LookupError("nobody thought of it")


def broken_off(_request: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"the beginning"
        raise LookupError("nobody thought of it")

    return StreamingResponse(parts())


async def test_an_unforeseen_error_is_a_problem_with_the_name_of_its_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = create_app(CollectorSettings(state_dir=tmp_path))
    app.add_route("/broken", broken)
    app.add_route("/broken-off", broken_off)
    configure_logging("info", "json")
    transport = httpx.ASGITransport(app=app)  # it raises what the server would be left with
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await client.get("/broken", headers={"X-Request-Id": "mine"})
        with pytest.raises(AssertionError):  # of httpx: the answer has no end
            await client.get("/broken-off", headers={"X-Request-Id": "other"})
    assert answer.status_code == 500
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json()["type"] == "urn:paceline:problem:internal"
    assert answer.headers["X-Request-Id"] == "mine"
    assert "frame-ancestors" in answer.headers["Content-Security-Policy"]
    logged = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["request_id"], line["path"]) for line in logged] == [
        ("mine", "/broken"), ("other", "/broken-off"),
    ]  # fmt: skip
    assert all("nobody thought of it" in line["exception"] for line in logged)
