"""replay, report and export against a real collector: one job, one answer on every way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import CollectorProcess
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import header, small_job, write, write_simulated


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    process = CollectorProcess(tmp_path_factory.mktemp("collector") / "state").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    fault = Fault(rank=1, phase=Phase.FORWARD, extra_ms=8, first=60)
    scenario = Scenario(data_parallel=2, tensor_parallel=2, steps=120, faults=(fault,))
    return write_simulated(tmp_path_factory.mktemp("logs"), simulate(scenario))[0]


def paceline(
    collector: CollectorProcess, verb: str, *arguments: str | Path
) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
    environment |= {"PACELINE_STATE_DIR": str(collector.directory), **collector.environment}
    where = ["--url", collector.url] if verb != "analyze" else []
    return subprocess.run(
        [sys.executable, "-m", "paceline", verb, *map(str, arguments), *where],
        capture_output=True, text=True, timeout=90, env=environment, check=False,
    )  # fmt: skip


def answer(report: dict[str, Any]) -> dict[str, Any]:
    """Return a report without what only the collector knows about a job, or only the files."""
    figures = ("world_size", "ranks_observed", "steps", "collectives")
    data = {name: value for name, value in report["data"].items() if name != "sources"}
    return report | {"job": {name: report["job"][name] for name in figures}, "data": data}


def test_a_replayed_an_exported_and_a_local_log_give_one_report(
    collector: CollectorProcess, slow: Path, tmp_path: Path
) -> None:
    local = json.loads(paceline(collector, "analyze", slow, "--format", "json").stdout)
    assert local["findings"][0]["ranks"] == [1]

    sent = paceline(collector, "replay", slow, "--job", "twice")
    assert sent.returncode == 0, sent.stderr
    assert f"twice, attempt 1: {collector.url}/#/jobs/twice?attempt=1" in sent.stdout
    assert "Rank 1 on node-0 is slow in forward since step 60" in sent.stdout

    held = json.loads(paceline(collector, "report", "twice", "--format", "json").stdout)
    assert held["job"]["state"] == "ended"
    assert answer(held) == answer(local)

    log = tmp_path / "twice.ndjson.gz"
    assert paceline(collector, "export", "twice", "-o", log).returncode == 0
    assert log.read_bytes()[:2] == b"\x1f\x8b"
    back = paceline(collector, "analyze", log, "--format", "json")
    assert back.returncode == 1
    assert answer(json.loads(back.stdout)) == answer(held)


def test_every_replay_is_an_attempt_of_its_own(collector: CollectorProcess, tmp_path: Path) -> None:
    log = write(tmp_path / "small job.ndjson", small_job(2, steps=4))
    assert "attempt 1" in paceline(collector, "replay", log).stdout
    assert "attempt 2" in paceline(collector, "replay", log).stdout
    first = paceline(collector, "report", "small-job", "--attempt", "1", "--format", "json")
    assert json.loads(first.stdout)["job"]["attempt"] == 1


def test_a_log_without_steps_and_joins_gives_the_same_report_replayed(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    log = write(tmp_path / "plain.ndjson", small_job(3, steps=60))
    local = json.loads(paceline(collector, "analyze", log, "--format", "json").stdout)
    assert paceline(collector, "replay", log).returncode == 0
    held = json.loads(paceline(collector, "report", "plain", "--format", "json").stdout)
    assert answer(held) == answer(local)


def test_a_replay_at_a_speed_takes_the_time_of_the_job(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    log = write(tmp_path / "paced.ndjson", small_job(2, steps=20))  # 1.97 s
    begun_s = time.monotonic()
    done = paceline(collector, "replay", log, "--speed", "2")
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun_s > 0.9


def test_an_export_to_stdout_is_an_event_log(collector: CollectorProcess, tmp_path: Path) -> None:
    paceline(collector, "replay", write(tmp_path / "out.ndjson", small_job(2, steps=4)))
    lines = paceline(collector, "export", "out").stdout.splitlines()
    assert json.loads(lines[0])["schema"] == "paceline.events/1"
    assert len(lines) > 16


def test_the_text_report_names_the_job(collector: CollectorProcess, tmp_path: Path) -> None:
    paceline(collector, "replay", write(tmp_path / "text.ndjson", small_job(2, steps=4)))
    shown = paceline(collector, "report", "text")
    assert shown.returncode == 0
    assert shown.stdout.startswith("Paceline report: text, attempt 1, ended\n")


def test_what_a_collector_refuses_is_one_line_and_status_2(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    log = write(tmp_path / "a.ndjson", small_job())
    empty = write(tmp_path / "empty.ndjson", [header(2)])
    target = tmp_path / "never.ndjson"
    for done in (
        paceline(collector, "report", "nobody"),
        paceline(collector, "export", "nobody", "-o", target),
        paceline(collector, "replay", log, "--job", "not a name"),
        paceline(collector, "replay", log, "--speed", "0"),
        paceline(collector, "replay", empty),
    ):
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert done.stdout == ""
    assert not target.exists()


def test_a_wrong_token_sends_nothing(collector: CollectorProcess, tmp_path: Path) -> None:
    stranger = CollectorProcess(collector.directory, PACELINE_TOKEN="wrong")
    stranger.url = collector.url
    log = write(tmp_path / "a.ndjson", small_job())
    done = paceline(stranger, "replay", log, "--job", "stranger")
    assert done.returncode == 2
    assert "401" in done.stderr
    assert paceline(collector, "report", "stranger").returncode == 2


def test_an_absent_collector_is_told_with_its_address(tmp_path: Path) -> None:
    nobody = CollectorProcess(tmp_path / "state")
    nobody.url = "http://127.0.0.1:9"
    done = paceline(nobody, "report", "job")
    assert done.returncode == 2
    assert "http://127.0.0.1:9" in done.stderr
    assert "Traceback" not in done.stderr
