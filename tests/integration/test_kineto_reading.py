"""Traces read by several processes: the same answer as by one, and nobody is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import InputError
from paceline_service.bench.offline.traces import Job, write_traces
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import event, pieces, reading, stream
from paceline_service.importers.kineto.args import Args
from paceline_service.importers.kineto.job import read_traces
from paceline_service.importers.kineto.reading import workers_for
from paceline_service.importers.offline import answer_log

pytestmark = pytest.mark.integration

JOB = Job(ranks=8, events=6_250, slow_rank=2)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("traces")
    paths = write_traces(directory, JOB)
    broken = directory / "rank9.json"
    broken.write_bytes(b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "ts": 1, "du')
    return [*paths, broken]


def answer(paths: list[Path], workers: int) -> dict[str, Any]:
    faults = Faults()
    with (
        reading.reading(paths, faults, workers) as arrivals,
        read_traces(paths, faults, arrivals) as log,
    ):
        return answer_log(log).report


def test_processes_give_the_answer_that_one_gives(traces: list[Path]) -> None:
    alone = answer(traces, 0)
    assert alone["findings"][0]["ranks"] == [JOB.slow_rank]
    assert "rank9.json" in " ".join(alone["data"]["notes"])
    assert answer(traces, 1) == alone
    assert answer(traces, 3) == alone


def test_the_order_of_the_files_does_not_matter(traces: list[Path]) -> None:
    alone, turned = answer(traces, 0), answer(traces[::-1], 2)
    assert turned["findings"] == alone["findings"]
    assert turned["ranks"] == alone["ranks"]
    assert turned["data"]["trace"] == alone["data"]["trace"]


def test_what_only_json_can_say_comes_through(tmp_path: Path) -> None:
    """Numbers of any length, halves of letters: no other process is told of them, none fails."""
    event = {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllReduce", "ts": 5, "dur": 7}
    odd = [
        {"args": {"Seq": 1 << 70, "Process Group Name": "\ud800", "correlation": 1 << 66}},
        {"args": {"Collective name": "allreduce", "grid": [1 << 65], "stream": "7"}},
        {"args": ["no", "object"]},
    ]
    for rank in range(2):
        text = json.dumps({"traceEvents": [event | more for more in odd], "trace_id": 1 << 80})
        (tmp_path / f"rank{rank}.json").write_text(text.replace(str(1 << 80), f'"{rank}"'))
    paths = sorted(tmp_path.iterdir())
    assert answer(paths, 1)["data"]["trace"] == answer(paths, 0)["data"]["trace"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
def test_a_reader_that_dies_is_told_with_its_file(
    traces: list[Path], tmp_path: Path, how: signal.Signals
) -> None:
    endless = tmp_path / "endless.json"
    begin = b'{"traceEvents": [' + b'{"ph": "X", "cat": "kernel", "name": "a", "ts": 1},' * 60_000
    endless.write_bytes(begin * 8)
    faults = Faults()
    with reading.reading([endless], faults, 1) as arrivals:
        next(arrivals)
        (reader,) = children()
        os.kill(reader, how)
        with pytest.raises(InputError, match=f"endless.json: .* killed by signal {int(how)}"):
            list(arrivals)
    assert not children()


def test_a_file_that_is_gone_is_told_and_nobody_is_left(traces: list[Path], tmp_path: Path) -> None:
    gone = tmp_path / "rank0.json"
    with (
        reading.reading([*traces, gone], Faults(), 2) as arrivals,
        pytest.raises(InputError, match=r"rank0\.json does not exist"),
    ):
        list(arrivals)
    assert not children()


def test_whoever_stops_early_leaves_nobody(traces: list[Path]) -> None:
    with reading.reading(traces, Faults(), 2) as arrivals:
        next(arrivals)
        assert len(children()) == 2
    assert not children()


def test_readers_end_with_the_process_that_started_them(traces: list[Path], tmp_path: Path) -> None:
    endless = tmp_path / "endless.json"
    endless.write_bytes(b'{"traceEvents": [' + b'{"ph": "M"},' * 3_000_000)
    code = (
        "import sys; from pathlib import Path\n"
        "from paceline_service.importers.faults import Faults\n"
        "from paceline_service.importers.kineto.reading import reading\n"
        "with reading([Path(p) for p in sys.argv[1:]], Faults(), 2) as arrivals:\n"
        "    next(arrivals); print('reading', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, endless, endless], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as parent:  # fmt: skip
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"reading\n"
        readers = children(parent.pid)
        assert len(readers) == 2
        parent.kill()
        parent.wait()
    wait_for_the_end_of(readers)


def test_ctrl_c_ends_all_without_a_word(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core: nothing is read by other processes")
    for rank in range(2):
        text = (
            b'{"traceEvents": [' + b'{"ph": "X", "cat": "kernel", "name": "n", "ts": 1},' * 800_000
        )
        (tmp_path / f"rank{rank}.json").write_bytes(text)
    code = "import sys; from paceline.cli import main; sys.exit(main())"
    with subprocess.Popen(
        [sys.executable, "-c", code, "analyze", tmp_path], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, start_new_session=True,
    ) as parent:  # fmt: skip
        while len(readers := children(parent.pid)) < 2:
            assert parent.poll() is None, "it ended before it began to read"
            time.sleep(0.01)
        os.killpg(parent.pid, signal.SIGINT)
        output, errors = parent.communicate(timeout=30)
    assert (parent.returncode, output, errors) == (130, b"", b"")
    wait_for_the_end_of(readers)


def test_a_process_with_threads_starts_readers_anew(traces: list[Path]) -> None:
    """A copy of it could wait for ever for what another of its threads held."""
    ended = threading.Event()
    beside = threading.Thread(target=ended.wait)
    beside.start()
    try:
        with reading.reading(traces, Faults(), 1) as arrivals:
            next(arrivals)
            (reader,) = children()
            words = Path(f"/proc/{reader}/cmdline").read_bytes()
            assert b"importers.kineto.worker" in words
            list(arrivals)
    finally:
        ended.set()
        beside.join()
    assert not children()


def test_who_takes_what_others_read_imports_nothing_that_reads() -> None:
    code = "import paceline_service.importers.kineto.job, sys; print('msgspec' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_arguments_have_the_fields_that_are_read() -> None:
    assert event.EventArgs.__struct_fields__ == tuple(one.name for one in fields(Args))


def test_a_process_that_reads_needs_no_numpy() -> None:
    code = "import paceline_service.importers.kineto.worker, sys; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_small_inputs_are_read_by_one_process(
    traces: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading.os, "sched_getaffinity", lambda pid: set(range(8)))
    assert workers_for(traces) == 0
    monkeypatch.setattr(reading, "WORTH_ONE_BYTES", 1 << 10)
    monkeypatch.setattr(reading, "WORTH_BYTES", 1 << 10)
    assert workers_for(traces) == 8
    assert workers_for(traces[:1]) == 0
    monkeypatch.setattr(reading.os, "sched_getaffinity", lambda pid: {0})
    assert workers_for(traces) == 0


def test_pieces_hold_no_more_than_what_was_read(
    traces: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory of a reader is bounded by a piece of text, whatever the file's length."""
    monkeypatch.setattr(stream, "PIECE_BYTES", 1 << 16)
    sizes = [sum(map(len, piece.tables)) for piece in pieces.read_pieces(traces[0])]
    assert len(sizes) > 5
    assert max(sizes) < 1 << 16


def wait_for_the_end_of(readers: list[int]) -> None:
    """Wait for processes that end by themselves, because nobody gives them paths any more."""
    deadline = time.monotonic() + 20
    while alive := [pid for pid in readers if is_alive(pid)]:
        assert time.monotonic() < deadline, f"{alive} outlive the process that started them"
        time.sleep(0.05)


def children(parent: int | None = None) -> list[int]:
    """Return the processes that read for ``parent``; a test run has other children, too."""
    found: list[int] = []
    for task in Path(f"/proc/{parent or os.getpid()}/task").iterdir():
        found += map(int, (task / "children").read_text().split())
    return [pid for pid in found if is_alive(pid) and reads(pid, parent or os.getpid())]


def reads(pid: int, parent: int) -> bool:
    """Whether it is a copy of ``parent`` or a process of its own, in a session of its own."""
    try:
        words, same = (Path(f"/proc/{one}/cmdline").read_bytes() for one in (pid, parent))
        own_session = os.getsid(pid) == pid
    except OSError:
        return False
    return own_session and (words == same or b"importers.kineto.worker" in words)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
