from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from tests.e2e.page.conftest import OpenPage
from tests.e2e.page.looking import until, until_text
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import write_simulated

pytestmark = pytest.mark.e2e

PACELINE = Path(sys.executable).parent / "paceline"
START_S = 30.0


@pytest.fixture
def collector(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the address of a real collector."""
    monkeypatch.setenv("PACELINE_STATE_DIR", str(tmp_path / "state"))
    ready = tmp_path / "ready.json"
    process = subprocess.Popen(
        [PACELINE, "serve", "--port", "0", "--ready-file", ready, "--log-level", "warning"]
    )
    try:
        deadline_s = time.monotonic() + START_S
        while not ready.exists():
            assert process.poll() is None, "paceline serve ended at once"
            assert time.monotonic() < deadline_s, "paceline serve did not become ready"
            time.sleep(0.05)
        yield json.loads(ready.read_text())["url"]
    finally:
        process.terminate()
        process.wait(10)


def test_replayed_job_is_shown_as_the_real_collector_tells_it(
    collector: str, open_page: OpenPage, tmp_path: Path
) -> None:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=12.0, first=60)
    logs = write_simulated(tmp_path, simulate(Scenario(steps=160, faults=(fault,))))
    replay = [str(PACELINE), "replay", *map(str, logs), "--url", collector, "--job", "replayed"]
    subprocess.run(replay, check=True, timeout=60)
    page = open_page(collector)
    page.locator(".job-list a").click()
    page.get_by_role("heading", name="Rank 2 is slow in the backward pass", level=1).wait_for()
    until(page, "document.querySelector('.lanes canvas').dataset.teeth > 0")
    until_text(page, "#sawtooth-words", "Rank 2 waits 0")
    assert page.locator("#ranks tr.slow").count() == 1
    assert "complete" in page.inner_text(".figures")
