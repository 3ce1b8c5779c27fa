"""Schemathesis over the OpenAPI document of a real collector that holds jobs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from tests.conftest import ROOT
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
)
from tests.simulator.job import Fault, Scenario, simulate

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
)
ENDLESS = "/events$"
"""A stream of events has no end to wait for; tests of its own read it."""


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector with a job that has ended and one that runs, both with an incident."""
    collector = CollectorProcess(tmp_path_factory.mktemp("api") / "state").start()
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=30, first=20)
    job = simulate(Scenario(steps=80, faults=(fault,), seed=3))
    client = collector.client()
    post_all(client, bodies(job, senders(job, job="0"), steps_per_frame=20))
    post_all(client, bodies(job, senders(job, job="running"), steps_per_frame=20, end=False))
    wait_for_state(client, "0", "ended")
    yield collector
    assert collector.stop() == 0


def fuzz(filled: CollectorProcess, report: Path, examples: int, max_s: int) -> None:
    """Run schemathesis; the process must find nothing, and leave a collector that is well."""
    command = [
        *(str(Path(sys.executable).with_name("st")), "run", f"{filled.url}/openapi.json"),
        *("--header", f"Authorization: Bearer {TOKEN}", "--checks", ",".join(CHECKS)),
        *("--exclude-path-regex", ENDLESS, "--seed", "1", "--max-examples", str(examples)),
        *("--phases", "examples,coverage,fuzzing", "--max-time", str(max_s)),
        *("--request-timeout", "20", "--continue-on-failure", "--no-shrink"),
        *("--suppress-health-check", "all", "--warnings", "off"),
        *("--report", "ndjson", "--report-dir", str(report)),
    ]
    if not Path(command[0]).exists():
        pytest.skip("schemathesis is missing: pip install schemathesis (or: make setup)")
    hooks = {"SCHEMATHESIS_HOOKS": "tests.integration.faults.api_hooks", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command,
        cwd=report.parent,
        env={**os.environ, **hooks},
        capture_output=True,
        text=True,
        timeout=3 * max_s + 60,
    )
    shutil.rmtree(report, ignore_errors=True)
    assert done.returncode == 0, _short(done.stdout) + _short(done.stderr)
    assert is_ready(filled.client())
    assert "Traceback" not in filled.log.read_text()
    assert filled.process is not None
    assert filled.process.poll() is None


def _short(text: str) -> str:
    lines = [line if len(line) < 300 else line[:300] + "..." for line in text.splitlines()]
    return "\n".join(lines[-150:])


@pytest.mark.timeout(240)
def test_no_request_that_the_openapi_document_allows_or_forbids_breaks_the_api(
    filled: CollectorProcess, tmp_path: Path
) -> None:
    fuzz(filled, tmp_path / "report", examples=5, max_s=20)


@pytest.mark.slow
@pytest.mark.timeout(40_000)
def test_many_more_requests(filled: CollectorProcess, tmp_path: Path) -> None:
    fuzz(filled, tmp_path / "report", examples=5000, max_s=int(os.environ.get("FUZZ_S", "300")))
