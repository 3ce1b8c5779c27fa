"""A disk that is full: of the collector's database, and of a sidecar's spool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    bodies,
    is_ready,
    senders,
    wait_for_state,
    wait_until,
)
from tests.integration.faults.disk import SmallDisk
from tests.integration.faults.sending import Senders, assert_stored_once
from tests.integration.sidecar_kit import Processes
from tests.simulator.job import Scenario, simulate


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 160 MB: with less than 64 MB free a collector is not ready."""
    made = SmallDisk(tmp_path / "disk", 160 << 20)
    yield made
    made.close()


def test_a_full_disk_of_the_database_costs_no_acknowledged_frame_and_passes_by_itself(
    disk: SmallDisk,
) -> None:
    collector = CollectorProcess(disk.path / "state").start()
    job = simulate(Scenario(data_parallel=4, steps=300, seed=2, buckets=1))
    work = [
        list(bodies(job, senders(job, job=f"job{number}"), steps_per_frame=2))
        for number in range(3)
    ]
    try:
        with Senders(lambda: collector.url, work) as sending:
            wait_until(lambda: len(sending.acknowledged) > 30, 30)
            disk.fill()
            wait_until(lambda: len(sending.problems) > 3, 30)
            problem = sending.problems[-1]
            assert problem.status in (503, 507)
            assert "its disk is full: make room" in str(problem)
            assert problem.retry_after_s
            assert not is_ready(collector.client())
            promised = sending.promised()
            assert not sending.done
            disk.make_room()
            sending.join(60)
            assert sending.done
            wait_until(lambda: is_ready(collector.client()), 20)
        stored = assert_stored_once(collector, sending.promised())
        assert promised < sending.promised()
        assert stored == len(sending.promised()) == 3 * 4 * 150
        for number in range(3):
            row = wait_for_state(collector.client(), f"job{number}", "ended", 30)
            assert row["steps"] == 300
        assert collector.rows("PRAGMA integrity_check") == [("ok",)]
    finally:
        collector.stop()


def test_a_collector_killed_with_a_full_disk_has_everything_that_it_acknowledged(
    disk: SmallDisk,
) -> None:
    collector = CollectorProcess(disk.path / "state").start()
    job = simulate(Scenario(data_parallel=2, steps=400, seed=2, buckets=1))
    work = [list(bodies(job, senders(job), steps_per_frame=2))]
    try:
        with Senders(lambda: collector.url, work) as sending:
            wait_until(lambda: len(sending.acknowledged) > 20, 30)
            disk.fill()
            wait_until(lambda: sending.problems, 30)
            port = collector.url.rpartition(":")[2]
            collector.kill()
            promised = sending.promised()
            disk.make_room()
            collector.start("--port", port)
            assert_stored_once(collector, promised)
            sending.join(60)
            assert sending.done
        assert_stored_once(collector, sending.promised())
    finally:
        collector.stop()


def test_a_full_disk_of_the_spool_leaves_the_records_in_the_rings_until_there_is_room(
    disk: SmallDisk, collector: CollectorProcess, processes: Processes
) -> None:
    spool = disk.path / "spool"
    # Nobody is there to take frames, so that they have to be spooled.
    nowhere = "http://127.0.0.1:9"
    sidecar = processes.sidecar("--url", nowhere, "--spool-dir", str(spool), "--drain-s", "0.2")
    processes.writer(total=6000, per_s=1500, end="close")
    wait_until(spool.exists, 20)
    disk.fill()
    wait_until(lambda: "takes no frame: records stay" in processes.log.read_text(), 30)
    disk.make_room()
    wait_until(lambda: "takes frames again" in processes.log.read_text(), 30)
    wait_until(lambda: not list(processes.runtime_dir.glob("*.ring")), 30)
    sidecar.terminate()
    assert sidecar.wait(60) == 0
    drain = processes.sidecar(
        "--url", collector.url, "--spool-dir", str(spool), "--drain", PACELINE_TOKEN=TOKEN
    )
    assert drain.wait(60) == 0
    assert collector.rows("select sum(records) from frames") == [(6000,)]
    (rows, distinct, last) = collector.rows(
        "select count(*), count(distinct frame_seq), max(frame_seq) from frames"
    )[0]
    assert rows == distinct == last + 1
