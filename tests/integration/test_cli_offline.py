"""``paceline analyze`` as a process: what it prints, writes and returns."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from paceline_service.cli import analyze
from tests.simulator.job import Fault, Scenario, simulate
from tests.unit.importers.logs import header, small_job, text, write, write_simulated


def paceline(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PACELINE_")}
    return subprocess.run(
        [sys.executable, "-m", "paceline", *map(str, arguments)],
        capture_output=True, text=True, timeout=60, env=environment, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job of four ranks of which rank 2 is slow in backward from step 50 on."""
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=50)
    directory = tmp_path_factory.mktemp("the 'slow' job")
    write_simulated(directory, simulate(Scenario(steps=100, faults=(fault,))), per_rank=True)
    return directory


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    job = simulate(Scenario(steps=100, seed=4))
    return write_simulated(tmp_path_factory.mktemp("healthy"), job)[0]


def test_a_slow_rank_is_named_in_words_and_the_status_is_1(slow: Path) -> None:
    done = paceline("analyze", slow)
    assert done.returncode == 1, done.stderr
    assert "Rank 2 on node-0 is slow in backward since step 50." in " ".join(done.stdout.split())
    assert done.stderr == ""


def test_json_is_the_report_schema_and_nothing_else(slow: Path) -> None:
    done = paceline("analyze", slow, "--format", "json")
    report = json.loads(done.stdout)
    assert report["schema"] == "paceline.report/1"
    assert report["verdict"] == "straggler"
    assert report["findings"][0]["ranks"] == [2]
    assert report["data"]["complete"]


def test_a_healthy_job_gives_0_and_too_little_of_it_3(healthy: Path, tmp_path: Path) -> None:
    assert paceline("analyze", healthy).returncode == 0
    done = paceline("analyze", write(tmp_path / "short.ndjson", small_job(2, steps=3)))
    assert done.returncode == 3
    assert "What is missing" in done.stdout
    assert "What to do" in done.stdout


@pytest.mark.parametrize(
    ("kind", "status"), [("straggler", 1), ("hang", 0), ("insufficient_evidence", 0)]
)
def test_fail_on_gives_1_for_that_kind_only(slow: Path, kind: str, status: int) -> None:
    assert paceline("analyze", slow, "--fail-on", kind).returncode == status


def test_fail_on_does_not_hide_bad_input(tmp_path: Path) -> None:
    assert paceline("analyze", tmp_path / "nowhere", "--fail-on", "hang").returncode == 2
    assert paceline("analyze", tmp_path, "--fail-on", "lunch").returncode == 2


def test_the_report_goes_into_a_file_that_is_whole_or_absent(slow: Path, tmp_path: Path) -> None:
    target = tmp_path / "report.json"
    done = paceline("analyze", slow, "--format", "json", "-o", target)
    assert (done.returncode, done.stdout) == (1, "")
    assert json.loads(target.read_text())["verdict"] == "straggler"
    assert list(tmp_path.iterdir()) == [target]
    done = paceline("analyze", slow, "-o", tmp_path / "nowhere" / "report.txt")
    assert done.returncode == 2
    assert "cannot be written" in done.stderr


def test_wrong_usage_is_2_and_help_is_0() -> None:
    assert paceline("analyze").returncode == 2
    assert paceline("analyze", "--nonsense").returncode == 2
    shown = paceline("analyze", "--help")
    assert shown.returncode == 0
    assert "0 healthy, 1 findings, 2 bad input, 3 insufficient evidence" in " ".join(
        shown.stdout.split()
    )


def test_bad_input_is_one_line_with_its_place_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a \"b\" 'c'.ndjson"
    for content in (
        b"",
        b"\x00\x01\x02",
        b'{"schema":"paceline.events/9","world_size":2}\n',
        text([{"schema": "paceline.events/1"}]),
        text([header(2), {"rank": 5, "step": 0, "phase": "forward", "start_ns": 1, "end_ns": 2}]),
        text([header(2)]).decode().encode("utf-16"),
        gzip.compress(text(small_job()))[:-20],
        gzip.compress(b"")[:5],
    ):
        path.write_bytes(content)
        assert analyze([str(path), "--strict"]) == 2, content
        shown = capsys.readouterr()
        assert shown.out == ""
        assert str(path) in shown.err
        assert "Traceback" not in shown.err


def test_what_is_unusable_is_told_on_stderr_and_the_rest_analysed(
    slow: Path, tmp_path: Path
) -> None:
    for path in slow.iterdir():
        raw = gzip.decompress(path.read_bytes())
        (tmp_path / path.stem).write_bytes(raw + b'{"rank":1,"ste')
    done = paceline("analyze", tmp_path, "--format", "json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["data"]["dropped"] == {"torn_line": 4}
    assert not report["data"]["complete"]
    assert f"{tmp_path}/rank0.ndjson:" in done.stderr
    assert paceline("analyze", tmp_path, "--strict").returncode == 2


def test_an_empty_directory_is_bad_input(tmp_path: Path) -> None:
    done = paceline("analyze", tmp_path)
    assert done.returncode == 2
    assert "holds no file of a known format among 0 files" in done.stderr


def test_a_reader_that_goes_away_is_no_error(slow: Path) -> None:
    command = (
        f"{shlex.quote(sys.executable)} -m paceline analyze {shlex.quote(str(slow))} "
        "--format json | head -1"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_a_terminal_without_utf8_can_show_every_report(slow: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "utf8=0", "-m", "paceline", "analyze", str(slow)],
        capture_output=True, timeout=60, check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stdout.isascii()
