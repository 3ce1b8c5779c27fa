from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.sidecar import stacks
from paceline.sidecar.stacks import Stacks, dump, main_thread
from paceline.sidecar.telemetry.buffer import TelemetryBuffer

OUTPUT = """Process 7: python train.py
Python v3.11.2

Thread 9 (idle): "paceline-poller"
    wait (threading.py:327)
Thread 8 (active+gil): "MainThread"
    recv (loader.py:3)
    main (train.py:51)
"""


class Ring:
    """A followed ring, as far as stacks need it."""

    def __init__(self, tmp_path: Path) -> None:
        self.identity = SimpleNamespace(incarnation=b"\1" * 16)
        self.path = tmp_path / "rank.ring"
        self.telemetry = TelemetryBuffer()
        self.step = 0

    def now_ns(self) -> int:
        return 5

    def stack(self) -> list[str]:
        return [line for sample in self.telemetry.give() for line in sample.values["stack"]]


@pytest.fixture
def fake(tmp_path: Path) -> Callable[..., str]:
    def make(script: str) -> str:
        path = tmp_path / "py-spy"
        path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\n{script}\n')
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return str(path)

    return make


def wait_for_thread() -> None:
    for thread in threading.enumerate():
        if thread.name == "paceline-stack":
            thread.join(20)


def go(watch: Stacks, ring: Any, seconds: list[float]) -> None:
    for now_s in seconds:
        watch.look([ring], now_s)
        wait_for_thread()


@pytest.fixture
def ring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ring:
    monkeypatch.setattr(stacks, "writer_pid", lambda path: 4711)
    return Ring(tmp_path)


def do_steps(watch: Stacks, ring: Ring, count: int, step_s: float = 1.0) -> float:
    now_s = 0.0
    for _ in range(count):
        go(watch, ring, [now_s])
        ring.step += 1
        now_s += step_s
    return now_s


def test_a_rank_that_stands_still_is_looked_at_once(
    fake: Callable[..., str], ring: Ring, tmp_path: Path
) -> None:
    command = fake(f"cat <<'END'\n{OUTPUT}END")
    watch = Stacks(lambda: command)
    now_s = do_steps(watch, ring, 10)
    go(watch, ring, [now_s, now_s + 10])
    assert not (tmp_path / "calls").exists()
    go(watch, ring, [now_s + after_s for after_s in (16, 17, 60, 600)])
    assert ring.stack() == ["recv (loader.py:3)", "main (train.py:51)"]
    assert (tmp_path / "calls").read_text() == "dump --nonblocking --pid 4711\n"
    ring.step += 1  # it goes on, and stands still again
    go(watch, ring, [now_s + 601, now_s + 700, now_s + 10_000])
    assert len((tmp_path / "calls").read_text().splitlines()) == 2


def test_a_rank_of_long_steps_or_without_a_step_is_left_alone(
    fake: Callable[..., str], ring: Ring, tmp_path: Path
) -> None:
    watch = Stacks(lambda: fake("echo"))
    go(watch, ring, [0, 100, 1000])
    now_s = do_steps(watch, ring, 5, step_s=60)
    go(watch, ring, [now_s, now_s + 200])
    assert not (tmp_path / "calls").exists()


def test_without_py_spy_nothing_happens(ring: Ring) -> None:
    watch = Stacks(lambda: None)
    now_s = do_steps(watch, ring, 5)
    go(watch, ring, [now_s, now_s + 50, now_s + 100])
    assert ring.telemetry.give() == []


def test_a_dump_that_does_not_end_is_ended_and_never_holds_up_the_loop(
    fake: Callable[..., str], ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = fake("exec sleep 600")
    with pytest.raises(ValueError, match="printed nothing"):
        dump(command, 1, timeout_s=0.2)
    released = threading.Event()
    monkeypatch.setattr(stacks, "dump", lambda command, pid: released.wait(30) and OUTPUT)
    watch = Stacks(lambda: command)
    now_s = do_steps(watch, ring, 5)
    watch.look([ring], now_s)
    watch.look([ring], now_s + 50)
    watch.look([ring], now_s + 51)  # the dump has not come back, and the loop goes on
    assert ring.telemetry.give() == []
    released.set()
    wait_for_thread()
    watch.look([ring], now_s + 52)
    assert ring.stack()[0] == "recv (loader.py:3)"


def test_the_output_of_a_dump_is_bounded(fake: Callable[..., str]) -> None:
    endless = fake("exec yes '    frame (file.py:1)'")
    assert len(dump(endless, 1)) == stacks.MAX_OUTPUT_BYTES
    lines = main_thread('Thread 1 (idle): "MainThread"\n' + ("    " + "x" * 5000 + "\n") * 900)
    assert (len(lines), len(lines[0])) == (stacks.MAX_LINES, stacks.MAX_LINE_CHARS)


def test_what_is_no_dump_gives_no_lines() -> None:
    assert main_thread("Error: Permission Denied\n    try sudo\n") == []
    assert main_thread("") == []


def test_py_spy_is_found_on_the_path(
    tmp_path: Path, fake: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = fake("echo")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert stacks.find_py_spy() == command
