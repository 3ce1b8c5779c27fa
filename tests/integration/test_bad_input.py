"""Bad input through the real command: told by name, the rest analysed, and an honest status."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline_service.cli import analyze
from tests.integration.terminal import Terminal
from tests.unit.importers.flight_dumps import dumps_of
from tests.unit.importers.flight_dumps import write as write_dumps
from tests.unit.importers.logs import header, phase, small_job, text, write
from tests.unit.importers.traces import TraceJob, traces, write_traces

Run = Callable[..., "Done"]
STEERING = "\x1b]0;owned\x07\x1b[2J\r\n‮ 'a' \"b\""


@dataclass(frozen=True)
class Done:
    """What a command said."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def paceline(capsys: pytest.CaptureFixture[str]) -> Run:
    """``paceline analyze`` as its entry point runs it, in this process: a start takes a second."""

    def run(*arguments: str | Path) -> Done:
        status = analyze([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(returncode=status, stdout=captured.out, stderr=captured.err)

    return run


def test_names_that_would_steer_a_terminal_are_shown_and_do_not(
    tmp_path: Path, paceline: Run
) -> None:
    folder = tmp_path / STEERING.replace("/", "")
    folder.mkdir()
    write_traces(folder, traces(TraceJob(slow=1)))
    (folder / f"rank4 {STEERING}.json").write_text("")
    done = paceline(folder)
    assert done.returncode == 1, done.stderr
    assert "rank4 ?]0;owned??[2J" in done.stderr
    told = done.stdout + done.stderr
    assert not {c for c in told if c != "\n" and not c.isprintable()}
    document = json.loads(paceline(folder, "--format", "json").stdout)
    assert any(STEERING in path for path in document["data"]["sources"][0]["files"])
    page = paceline(folder, "-o", tmp_path / "page.html")
    assert page.returncode == 1
    assert "\x1b" not in (tmp_path / "page.html").read_text()


def test_a_name_that_is_no_text_is_shown_and_written(tmp_path: Path, paceline: Run) -> None:
    folder = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(folder)
    write_traces(Path(os.fsdecode(folder)), traces(TraceJob(slow=1)))
    (Path(os.fsdecode(folder)) / "rank4.json").touch()
    for form in ("text", "json", "html"):
        done = paceline(os.fsdecode(folder), "--format", form, "-o", tmp_path / form)
        assert done.returncode == 1, done.stderr
        told = "".join((tmp_path / form).read_text().split())
        assert "rank4.json:leftout:empty" in told


def test_a_hostile_pickle_is_refused_and_not_run(tmp_path: Path, paceline: Run) -> None:
    class Hostile:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "owned"),)

    write_dumps(tmp_path, dumps_of())
    hostile = {"version": "2.9", "pg_status": {}, "entries": [Hostile()]}
    (tmp_path / "_dump_2").write_bytes(pickle.dumps(hostile, protocol=2))
    done = paceline(tmp_path)
    assert not (tmp_path / "owned").exists()
    assert done.returncode == 1
    assert "_dump_2" in done.stderr
    assert "refused" in done.stderr or "mkdir" in done.stderr, done.stderr
    alone = paceline(tmp_path / "_dump_2")
    assert alone.returncode == 2
    assert not (tmp_path / "owned").exists()


def test_one_rank_alone_is_too_little_and_none_is_bad_input(tmp_path: Path, paceline: Run) -> None:
    documents = traces(TraceJob(slow=1))
    write_traces(tmp_path, documents[:1])
    done = paceline(tmp_path)
    assert done.returncode == 3
    assert "What is missing" in done.stdout
    (tmp_path / "rank0.json").write_text(json.dumps(documents[0])[:40])
    done = paceline(tmp_path)
    assert done.returncode == 2
    assert "rank0.json" in done.stderr
    assert "Traceback" not in done.stderr


def test_strict_refuses_what_else_would_be_told(tmp_path: Path, paceline: Run) -> None:
    write_traces(tmp_path, traces(TraceJob(slow=1)))
    assert paceline(tmp_path, "--strict").returncode == 1
    (tmp_path / "rank4.json").touch()
    assert paceline(tmp_path).returncode == 1
    done = paceline(tmp_path, "--strict")
    assert done.returncode == 2
    assert "rank4.json: left out: empty" in done.stderr


def test_a_pipe_in_a_folder_is_left_out_and_never_waited_for(tmp_path: Path, paceline: Run) -> None:
    write_traces(tmp_path, traces(TraceJob(slow=1)))
    os.mkfifo(tmp_path / "rank4.json")
    done = paceline(tmp_path)
    assert done.returncode == 1
    assert "rank4.json: left out: no regular file" in done.stderr
    assert paceline(tmp_path / "rank4.json").returncode == 2
    assert paceline("/dev/null").returncode == 2


def test_the_bar_is_on_a_terminal_only_and_gone_at_the_end(tmp_path: Path) -> None:
    write_traces(tmp_path, traces(TraceJob(slow=1)))
    with Terminal("analyze", str(tmp_path), environment={}) as terminal:
        assert terminal.ended() == 1
        assert "of 4" in terminal.text
        assert "Rank 1 is slow" in terminal.text
        assert terminal.raw.index(b"\x1b[?25h") < terminal.raw.index(b"Paceline report")


@pytest.mark.slow
def test_a_trace_of_2_gb_is_read_in_bounded_memory(tmp_path: Path) -> None:
    documents = traces(TraceJob(slow=1, steps=40))
    write_traces(tmp_path, documents, packed=True)
    filler = "".join(
        json.dumps({"ph": "X", "cat": "cpu_op", "name": f"aten::op{n}", "pid": 1, "tid": 1,
                    "ts": 1_700_000_000_001_000 + n * 0.5, "dur": 0.25,
                    "args": {"External id": n, "Sequence number": n * 7919 % 104729}}) + ",\n"
        for n in range(200_000)
    ).encode()  # fmt: skip
    head, tail = json.dumps(documents[0]).split('"traceEvents": [', 1)
    packer = zlib.compressobj(1, wbits=31)
    written = 0
    with (tmp_path / "rank0.json.gz").open("wb") as file:
        file.write(packer.compress(f'{head}"traceEvents": ['.encode()))
        while written < 2_000_000_000:
            file.write(packer.compress(filler))
            written += len(filler)
        file.write(packer.compress(tail.encode()) + packer.flush())
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "analyze", tmp_path, "--format", "json"],
        stdout=subprocess.PIPE,
    )
    output, usage = _output_and_usage(process)
    assert os.waitstatus_to_exitcode(usage[0]) == 1
    assert json.loads(output)["findings"][0]["ranks"] == [1]
    assert usage[1].ru_maxrss < 700 * 1024, "KiB: nothing like the 2 GB of the file"


def _output_and_usage(
    process: subprocess.Popen[bytes],
) -> tuple[bytes, tuple[int, resource.struct_rusage]]:
    parts: list[bytes] = []
    assert process.stdout is not None
    reader = threading.Thread(target=lambda: parts.append(process.stdout.read()))  # type: ignore[union-attr]
    reader.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    reader.join()
    process.stdout.close()
    return parts[0], (status, usage)


@pytest.mark.slow
def test_a_sparse_file_of_2_gb_and_a_zip_bomb_cost_neither_memory_nor_time(tmp_path: Path) -> None:
    write(tmp_path / "log.ndjson", small_job(2, steps=40))
    with (tmp_path / "rank0.json").open("wb") as file:
        file.truncate(2 << 30)
    with gzip.open(tmp_path / "bomb.ndjson.gz", "wb", 6) as file:
        file.write(text([header(2), *(phase(0, step) for step in range(40))]))
        line = b'{"rank":0,"step":41,"phase":"forward","start_ns":1,"end_ns":2}\n' * 10_000
        for _ in range(500):
            file.write(line)
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "analyze", tmp_path, "--format", "json"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    output, usage = _output_and_usage(process)
    assert os.waitstatus_to_exitcode(usage[0]) == 0
    told = json.loads(output)["data"]
    assert told["dropped"]["too_long"] == 1
    assert not told["complete"]
    assert any("more than 100 times its size" in note for note in told["notes"])
    assert usage[1].ru_maxrss < 700 * 1024, "KiB"
