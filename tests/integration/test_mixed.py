"""A folder of several formats through the real command: one answer that names what it stands on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline_service.cli import analyze
from tests.unit.importers.flight_dumps import dumps_of
from tests.unit.importers.flight_dumps import write as write_dumps
from tests.unit.importers.logs import small_job, write
from tests.unit.importers.traces import TraceJob, traces, write_traces


@pytest.fixture
def job(tmp_path: Path) -> Path:
    for name in ("profiles", "dumps", "logs"):
        (tmp_path / name).mkdir()
    write_traces(tmp_path / "profiles", traces(TraceJob(slow=2)), packed=True)
    write_dumps(tmp_path / "dumps", dumps_of())
    return tmp_path


def test_each_format_is_told_with_what_it_says_alone(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert analyze([str(job)]) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert "The job hangs: rank 3 never entered all_reduce number 8" in told
    assert "Rank 2 is slow from the first step on" in told
    assert "Read from several formats, each of which says alone:" in told
    assert "PyTorch profiler trace (4 files): Rank 2 is slow" in told
    assert "Flight Recorder dump (4 files): The job hangs" in told


def test_json_has_a_headline_for_each_format(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert analyze([str(job), "--format", "json"]) == 1
    sources = json.loads(capsys.readouterr().out)["data"]["sources"]
    assert [(one["format"], one["verdict"]) for one in sources] == [
        ("PyTorch profiler trace", "straggler"),
        ("Flight Recorder dump", "hang"),
    ]
    assert sources[0]["headline"].startswith("Rank 2 is slow from the first step on")
    assert sources[1]["headline"].startswith("The job hangs: rank 3")


def test_files_of_two_jobs_are_bad_input_that_names_a_file_of_each(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(job / "logs" / "other.ndjson", small_job(6, steps=3))
    assert analyze([str(job)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "the input is of several jobs" in told.err
    assert "other.ndjson (event log) of a job of 6 ranks" in told.err
    assert "rank0.json.gz and 3 more (PyTorch profiler trace) of a job of 4 ranks" in told.err
