"""Lines of the log, and the names of requests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import httpx
import pytest
import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paceline_service.logs import configure_logging
from paceline_service.request_ids import RequestIdMiddleware


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def test_json_lines_hold_the_event_with_its_fields_and_no_token(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info", "json")
    log = structlog.get_logger("test")
    log.info("listening", url="http://localhost", token="plt_secret", size=3)
    log.debug("never shown")
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"], told["url"], told["size"]) == (
        "listening", "info", "http://localhost", 3,
    )  # fmt: skip
    assert told["timestamp"]
    assert "plt_secret" not in line


def test_lines_of_libraries_have_the_same_form() -> None:
    program = (
        "import logging; from paceline_service.logs import configure_logging\n"
        "configure_logging('info', 'json')\n"
        "try: raise LookupError('why')\n"
        "except LookupError: logging.getLogger('uvicorn.error').exception('it %s', 'broke')\n"
        "logging.getLogger('uvicorn.error').warning('Invalid HTTP request received.')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    (line,) = done.stderr.splitlines()
    told = json.loads(line)
    assert (told["event"], told["level"]) == ("it broke", "error")
    assert told["timestamp"]
    assert "LookupError: why" in told["exception"]


async def _endpoint(_request: Request) -> Response:
    structlog.get_logger("test").info("worked")
    return Response("ok")


async def test_a_request_has_a_name_in_its_answer_and_in_the_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logging("info", "json")
    app = RequestIdMiddleware(Starlette(routes=[Route("/", _endpoint)]))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
        given = await client.get("/", headers={"X-Request-Id": "from-the-ingress"})
        made = await client.get("/")
        refused = await client.get("/", headers={"X-Request-Id": "a b\x7f" * 40})
    logged = [json.loads(line)["request_id"] for line in capsys.readouterr().err.splitlines()]
    assert given.headers["X-Request-Id"] == "from-the-ingress" == logged[0]
    assert made.headers["X-Request-Id"] == logged[1] != logged[2]
    assert len(refused.headers["X-Request-Id"]) < 64
