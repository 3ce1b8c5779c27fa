from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paceline.clock import mono_ns
from paceline.hooks.recorder import Recorder
from paceline.hooks.starvation import (
    LOCKED_NS,
    LOOK_EVERY_NS,
    NO_CORE,
    NO_LOCK,
    QUEUED_NS,
    LockProbe,
    RunQueue,
    ThreadTimes,
)
from paceline.vocabulary import Phase
from tests.unit.hooks.kit import phases, recorder

pytestmark = pytest.mark.skipif(
    ThreadTimes(threading.get_native_id()).read() is None,
    reason="this kernel has no /proc/<pid>/task/<tid>/schedstat (CONFIG_SCHED_INFO)",
)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Recorder]:
    made = recorder(tmp_path)
    yield made
    made.close()


@contextmanager
def one_core_shared_with(rivals: int) -> Iterator[None]:
    """Let the calling thread and ``rivals`` busy processes have one core among them."""
    before = os.sched_getaffinity(0)
    core = min(before)
    script = f"import os\nos.sched_setaffinity(0, [{core}])\nprint('on', flush=True)\nwhile 1: pass"
    others = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
        for _ in range(rivals)
    ]
    try:
        for other in others:
            assert other.stdout is not None
            other.stdout.readline()
        os.sched_setaffinity(0, [core])
        yield
    finally:
        os.sched_setaffinity(0, before)
        for other in others:
            other.kill()
            other.communicate()


def spin(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def test_time_without_a_core_is_measured_at_the_boundary_that_follows(made: Recorder) -> None:
    made.claim_training_thread()
    queue = RunQueue(made)
    with one_core_shared_with(2):
        queue.boundary(start_ns := mono_ns())
        spin(0.3)
        queue.boundary(end_ns := mono_ns())
    (starved,) = phases(made, Phase.STARVED)
    assert (starved.seq, starved.end_ns) == (NO_CORE, end_ns)
    # Three share the core, so two thirds of the time are spent waiting for it.
    assert 0.3 < (starved.end_ns - starved.start_ns) / (end_ns - start_ns) <= 1
    queue.close()


def test_a_thread_that_sleeps_is_not_starved(made: Recorder) -> None:
    made.claim_training_thread()
    queue = RunQueue(made)
    queue.boundary(mono_ns())
    time.sleep(0.05)
    queue.boundary(mono_ns())
    assert all(r.end_ns - r.start_ns < 0.04e9 for r in phases(made, Phase.STARVED))
    queue.close()


@pytest.mark.parametrize("level", ["off", "steps", "collectives"])
def test_below_level_full_nothing_is_measured(tmp_path: Path, level: str) -> None:
    made = recorder(tmp_path, level)
    made.claim_training_thread()
    queue = RunQueue(made)
    queue.boundary(mono_ns())
    queue.boundary(mono_ns() + 10 * QUEUED_NS)
    assert not LockProbe(made).wanted
    assert phases(made, Phase.STARVED) == []
    made.close()


def look_often(probe: LockProbe) -> None:
    for _ in range(4):
        probe.look()
        time.sleep(LOOK_EVERY_NS / 1e9)


def hold_the_lock(stopping: threading.Event) -> None:
    while not stopping.is_set():
        sum(range(3_000_000))  # a loop in C, which never gives the interpreter's lock away


def test_a_thread_that_holds_the_lock_is_seen_by_a_look(made: Recorder) -> None:
    made.claim_training_thread()
    probe = LockProbe(made)
    stopping = threading.Event()
    holder = threading.Thread(target=hold_the_lock, args=(stopping,))
    poller = threading.Thread(target=look_often, args=(probe,))
    holder.start()
    poller.start()
    poller.join()  # the training thread neither runs nor stands in the run queue
    stopping.set()
    holder.join()
    starved = phases(made, Phase.STARVED)
    assert starved
    assert {r.seq for r in starved} == {NO_LOCK}
    assert all(r.end_ns - r.start_ns >= LOCKED_NS for r in starved)
    probe.close()


def test_a_training_thread_that_holds_the_lock_itself_is_not_starved(made: Recorder) -> None:
    made.claim_training_thread()
    probe = LockProbe(made)
    poller = threading.Thread(target=look_often, args=(probe,))
    poller.start()
    while poller.is_alive():
        sum(range(1_000_000))
    assert phases(made, Phase.STARVED) == []
    probe.close()


def test_times_of_a_thread_that_has_ended_are_unknown() -> None:
    ended = threading.Thread(target=lambda: None)
    ended.start()
    ended.join()
    times = ThreadTimes(ended.native_id or 0)
    until = time.monotonic() + 5.0
    while times.read() is not None and time.monotonic() < until:
        time.sleep(0.001)  # join returns a moment before the system's thread is gone
    assert times.read() is None
    times.close()
    times.close()
