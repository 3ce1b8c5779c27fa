"""The wall clock of the collector, or of a node, is set: forward by a day, back by hours."""

from __future__ import annotations

import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.vocabulary import Phase
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.sidecar_kit import Processes
from tests.simulator.job import Fault, Scenario, Simulated, simulate

HOUR_NS = 3600 * 10**9
SOURCE = Path(__file__).with_name("wallclock.c")


class WallClock:
    """The wall clock of the processes that are started with ``environment``."""

    def __init__(self, directory: Path, library: Path) -> None:
        self._file = directory / "moved"
        self._file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "WALLCLOCK_FILE": str(self._file)}

    def set(self, moved_ns: int) -> None:
        """Let the clock be off by so much from now on."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("<q", moved_ns))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that moves the clock of a process."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    built = tmp_path_factory.mktemp("clock") / "wallclock.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(built), str(SOURCE)]
    subprocess.run(command, check=True, capture_output=True)
    return built


@pytest.fixture
def clock(tmp_path: Path, library: Path) -> WallClock:
    """A clock that runs right at first."""
    made = WallClock(tmp_path, library)
    made.set(7 * HOUR_NS)
    ask = [sys.executable, "-c", "import time; print(time.time_ns())"]
    told = subprocess.run(ask, env=made.environment, capture_output=True, text=True, check=True)
    own = subprocess.run(ask, capture_output=True, text=True, check=True)
    if abs(int(told.stdout) - int(own.stdout) - 7 * HOUR_NS) > HOUR_NS:
        pytest.skip("LD_PRELOAD does not move this Python's clock (is it linked statically?)")
    made.set(0)
    return made


@pytest.fixture
def jumpy(tmp_path: Path, clock: WallClock) -> Iterator[CollectorProcess]:
    """A collector whose wall clock can be set."""
    collector = CollectorProcess(tmp_path / "state", **clock.environment).start()
    yield collector
    collector.stop()


@pytest.fixture(scope="module")
def slow_job() -> Simulated:
    """Four ranks; rank 2 is slow in backward from step 40 on."""
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=15, first=40)
    return simulate(Scenario(steps=160, faults=(fault,), seed=3))


def test_a_collector_whose_clock_is_set_forward_and_back_says_the_same(
    jumpy: CollectorProcess, clock: WallClock, slow_job: Simulated
) -> None:
    client = jumpy.client()
    posted = list(bodies(slow_job, senders(slow_job), steps_per_frame=10))
    moves = {4: 24 * HOUR_NS, 10: -48 * HOUR_NS}
    for number, body in enumerate(posted):
        if number in moves:
            steps = 10 * number - 1
            wait_until(lambda steps=steps: client.report("train")["job"]["steps"] >= steps)
            clock.set(moves[number])
        assert client.post_frames(body)["accepted"] == 4
        assert client.get_json("/v1/jobs/train")["state"] == "running" or number == len(posted) - 1
    row = wait_for_state(client, "train", "ended")
    assert row["steps"] == 160
    report = client.report("train")
    assert report["findings"][0]["ranks"] == [2]
    assert report["data"]["complete"], report["data"]
    starts = client.get_json("/v1/jobs/train/steps")["start_wall_ns"]
    assert starts == sorted(starts)
    assert is_ready(client)
    assert "Traceback" not in jumpy.log.read_text()
    assert jumpy.rows("SELECT count(*) FROM frames") == [(64,)]
    jumpy.kill()
    jumpy.start()
    assert jumpy.client().report("train")["findings"][0]["ranks"] == [2]
    assert jumpy.client().get_json("/v1/jobs/train")["steps"] == 160


def test_a_gap_is_given_up_although_the_clock_was_set_back_while_it_was_waited_for(
    jumpy: CollectorProcess, clock: WallClock, slow_job: Simulated
) -> None:
    jumpy.stop()
    jumpy.environment["PACELINE_SERVE_REORDER_WAIT_S"] = "3"
    jumpy.start()
    client = jumpy.client()
    posted = list(bodies(slow_job, senders(slow_job), steps_per_frame=10))
    post_all(client, [*posted[:3], posted[4]])
    clock.set(-5 * HOUR_NS)
    wait_until(lambda: client.report("train")["data"]["dropped"].get("frames_missing") == 4, 40)
    # What was given up and comes late is stored, counted, and told.
    assert client.post_frames(posted[3])["accepted"] == 4
    post_all(client, posted[5:])
    wait_for_state(client, "train", "ended")
    report = client.report("train")
    assert report["findings"][0]["ranks"] == [2]
    assert not report["data"]["complete"]
    assert report["data"]["dropped"]["frames_late"] == 4


def test_a_node_whose_clock_is_set_sends_every_record_once(
    collector: CollectorProcess, processes: Processes, clock: WallClock
) -> None:
    processes.sidecar("--url", collector.url, PACELINE_TOKEN=TOKEN, **clock.environment)
    processes.writer(total=1500, per_s=500, end="close")
    for moved in (24 * HOUR_NS, -6 * HOUR_NS, 0):
        clock.set(moved)
        before = collector.rows("select coalesce(sum(records), 0) from frames")[0][0]
        wait_until(
            lambda before=before: (
                collector.rows("select coalesce(sum(records), 0) from frames")[0][0] > before
            ),
            30,
        )
    wait_until(lambda: collector.rows("select sum(records) from frames") == [(1500,)], 30)
    (rows, distinct, last) = collector.rows(
        "select count(*), count(distinct frame_seq), max(frame_seq) from frames"
    )[0]
    assert rows == distinct == last + 1


def test_a_clock_that_is_ten_days_ahead_lets_retention_delete_nothing(
    jumpy: CollectorProcess, clock: WallClock, slow_job: Simulated
) -> None:
    jumpy.stop()
    jumpy.environment["PACELINE_SERVE_RAW_RETENTION_DAYS"] = "1"
    jumpy.start()
    client = jumpy.client()
    post_all(client, bodies(slow_job, senders(slow_job), steps_per_frame=40))
    wait_for_state(client, "train", "ended")
    clock.set(240 * HOUR_NS)
    wait_until(lambda: "the wall clock was set" in jumpy.log.read_text(), 40)
    assert jumpy.rows("SELECT count(*) FROM frames") == [(16,)]
