"""A collector that is stopped or killed goes on from its checkpoint, or from the frames."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline_service.client import Client
from tests.integration.collector.kit import (
    CollectorProcess,
    bodies,
    is_ready,
    post_all,
    senders,
    wait_for_state,
    wait_until,
)
from tests.simulator.job import Simulated

NEWEST = "SELECT max(id) FROM frames"
TODAY_NS = time.time_ns()
HELD = "SELECT max(frame_id) FROM checkpoints"


@pytest.fixture
def often(tmp_path: Path) -> Iterator[CollectorProcess]:
    """A collector that writes its analysis down all the time."""
    process = CollectorProcess(tmp_path / "state", PACELINE_SERVE_CHECKPOINT_S="0.2").start()
    yield process
    assert process.stop() == 0


def frames_of(job: Simulated, name: str = "train") -> list[bytes]:
    """Return request bodies of a job that runs today: what is old is not kept for long."""
    return list(bodies(job, senders(job, job=name, anchor=(10**12, TODAY_NS))))


def told(client: Client, name: str = "train") -> Any:
    """Return everything that is told of a job but its name."""
    report = client.report(name)
    steps = client.get_json(f"/v1/jobs/{name}/steps", phases=1, limit=1000)
    report["job"]["headline"] = report["job"]["headline"].replace(name, "")
    report["job"]["name"] = steps["job"] = ""
    return report, steps


def execute(process: CollectorProcess, *statements: str) -> None:
    connection = sqlite3.connect(process.database)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, slow_backward: Simulated
) -> Iterator[Any]:
    """What is told of the job where nothing happens to the collector."""
    process = CollectorProcess(tmp_path_factory.mktemp("whole") / "state").start()
    client = process.client()
    post_all(client, frames_of(slow_backward))
    wait_for_state(client, "train", "ended", 30)
    yield told(client)
    assert process.stop() == 0


def taken_up(process: CollectorProcess) -> int:
    return process.log.read_text().count("taken up from a checkpoint")


def restart(process: CollectorProcess) -> Client:
    process.start()
    client = process.client()
    wait_until(lambda: is_ready(client), 40)
    return client


def test_after_kill_9_it_goes_on_where_the_checkpoint_is_without_the_frames_before(
    often: CollectorProcess, slow_backward: Simulated, uninterrupted: Any
) -> None:
    client = often.client()
    posted = frames_of(slow_backward)
    post_all(client, posted[:9])
    wait_until(lambda: often.rows(HELD) == often.rows(NEWEST) == [(36,)], 60)
    often.kill()
    execute(often, "DELETE FROM frames WHERE id <= 20")  # as retention does
    client = restart(often)
    assert taken_up(often) == 1
    post_all(client, posted[9:13])
    wait_until(lambda: client.report("train")["job"]["steps"] == 129, 30)
    often.kill()  # whether or not there is a newer checkpoint by now
    client = restart(often)
    assert taken_up(often) == 2
    post_all(client, posted[13:])
    wait_for_state(client, "train", "ended", 30)
    assert told(client) == uninterrupted
    wait_until(lambda: often.rows("SELECT count(*) FROM checkpoint_parts") == [(0,)], 30)
    assert often.rows("SELECT count(*) FROM checkpoints") == [(0,)]
    assert len(client.get_json("/v1/jobs/train/incidents")["incidents"]) == 1


def test_a_collector_that_stops_writes_down_where_it_is(
    collector: CollectorProcess, slow_backward: Simulated, uninterrupted: Any
) -> None:
    client = collector.client()
    posted = frames_of(slow_backward)
    post_all(client, posted[:11])
    assert collector.stop() == 0
    assert collector.rows(HELD) == collector.rows(NEWEST)
    stored = collector.rows("SELECT count(*), min(step), max(step) FROM step_summaries")
    assert stored == [(109, 0, 108)]
    client = restart(collector)
    assert taken_up(collector) == 1
    post_all(client, posted[11:])
    wait_for_state(client, "train", "ended", 30)
    assert told(client) == uninterrupted


DAMAGES = {
    "zeros": ("UPDATE checkpoint_parts SET body = zeroblob(length(body))", "damaged"),
    "lost": ("DELETE FROM checkpoint_parts", "damaged"),
    "other": ("UPDATE checkpoints SET fingerprint = 'of another version'", "another version"),
    "newer": ("UPDATE checkpoints SET frame_id = 1000000", "newest that is stored"),
    "older": ("UPDATE checkpoints SET frame_id = frame_id - 1", "ends at frame"),
}


def test_a_checkpoint_that_cannot_be_used_is_told_and_the_frames_are_analysed_again(
    collector: CollectorProcess, slow_backward: Simulated, uninterrupted: Any
) -> None:
    client = collector.client()
    posted = {name: frames_of(slow_backward, name) for name in DAMAGES}
    for frames in posted.values():
        post_all(client, frames[:11])
    assert collector.stop() == 0
    for name, (damage, _) in DAMAGES.items():
        execute(
            collector,
            f"{damage} WHERE attempt_id = (SELECT a.id FROM job_attempts a "
            f"JOIN jobs j ON j.id = a.job_id WHERE j.name = '{name}')",
        )
    client = restart(collector)
    assert taken_up(collector) == 0
    told_why = collector.log.read_text()
    assert told_why.count("a checkpoint is not used") == len(DAMAGES)
    for name, frames in posted.items():
        assert DAMAGES[name][1] in told_why
        post_all(client, frames[11:])
        wait_for_state(client, name, "ended", 30)
        assert told(client, name) == uninterrupted
