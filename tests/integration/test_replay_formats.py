"""Files of every format that has timed records, sent to a real collector: one job, one answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline_service.commands.replay import main as replay
from paceline_service.importers.sources import analyze_paths
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until
from tests.unit.importers import flight_dumps
from tests.unit.importers.inspector_files import FIRST_US, InspectorJob, write_inspector
from tests.unit.importers.traces import TraceJob, traces, write_traces
from tests.unit.importers.what_if_traces import pipeline_ops, write_trace

Json = dict[str, Any]


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    process = CollectorProcess(tmp_path_factory.mktemp("collector") / "state").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_TOKEN", TOKEN)


def send(collector: CollectorProcess, *arguments: str | Path) -> int:
    return replay([*map(str, arguments), "--url", collector.url])


def same(report: Json) -> Json:
    """Return a report without what only a collector or only files have."""
    figures = ("world_size", "ranks_observed", "steps", "collectives")
    data = {name: value for name, value in report["data"].items() if name != "sources"}
    return report | {"job": {name: report["job"][name] for name in figures}, "data": data}


def kineto(folder: Path) -> None:
    job = TraceJob(world_size=8, slow=5, host_late=True, steps=40, first_step=2)
    folder.mkdir()
    write_traces(folder, traces(job))


def what_if(folder: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'paceline-service[parquet]'")
    folder.mkdir()
    write_trace(folder / "trace-T.parquet", pipeline_ops())


def inspector(folder: Path) -> None:
    job = InspectorJob(tensor=2, data=4, slow=5, extra_ms=1.5, lost=0.01, steps=40)
    write_inspector(folder, job)


def inspector_at_the_end(folder: Path) -> None:
    write_inspector(folder, InspectorJob(data=8, slow=5, extra_ms=1.5, at_end=True, steps=40))


@pytest.mark.parametrize("write", [kineto, what_if, inspector, inspector_at_the_end])
def test_the_report_of_a_replayed_job_is_that_of_its_files(
    collector: CollectorProcess, tmp_path: Path, write: Callable[[Path], None]
) -> None:
    folder = tmp_path / write.__name__
    write(folder)
    local = analyze_paths([folder]).report
    assert local["findings"]
    assert send(collector, folder) == 0
    held = collector.client().report(folder.name)
    assert same(dict(held)) == same(local)
    drawn = collector.client().timeline(folder.name)["traceEvents"]
    assert any(str(event["name"]).startswith("waits for rank") for event in drawn)
    lanes = "SELECT count(*) FROM lanes JOIN job_attempts ON job_attempts.id = attempt_id"
    lanes += " JOIN jobs ON jobs.id = job_id WHERE name = ?"
    wait_until(lambda: collector.rows(lanes, folder.name)[0][0] > 100)


def begins_s(collector: CollectorProcess, job: str) -> list[float]:
    steps = collector.client().steps(job)
    return [begin / 1e9 for begin in steps["start_wall_ns"] if begin is not None]


def test_a_job_of_another_day_runs_now_unless_its_own_times_are_asked_for(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "another-day"
    write_inspector(folder, InspectorJob(data=4, steps=30))
    assert send(collector, folder) == 0
    now = begins_s(collector, "another-day")
    assert time.time() - 60 < min(now) < max(now) < time.time()
    assert send(collector, folder, "--at", "original", "--job", "then") == 0
    then = begins_s(collector, "then")
    assert FIRST_US / 1e6 - 1 < min(then) < max(then) < FIRST_US / 1e6 + 2
    ranks = collector.client().report("then")
    assert ranks["verdict"] == collector.client().report("another-day")["verdict"] != "hang"


def test_own_times_are_refused_where_the_files_have_none(
    collector: CollectorProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what_if(tmp_path / "st")
    assert send(collector, tmp_path / "st", "--at", "original") == 2
    assert "do not tell when the job ran" in capsys.readouterr().err


def test_flight_recorder_dumps_are_refused_with_what_to_do_instead(
    collector: CollectorProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flight_dumps.write(tmp_path, flight_dumps.dumps_of())
    assert send(collector, tmp_path) == 2
    told = capsys.readouterr().err
    assert "no timeline" in told
    assert "`paceline analyze`" in told
