from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import TransportError
from paceline.wire.codec import split_frames
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


def test_every_acknowledged_frame_is_there_once_after_kill_9_while_senders_post(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    acknowledged: list[bytes] = []
    lock = threading.Lock()
    stop = threading.Event()

    def send(number: int) -> None:
        ranks = senders(healthy, job=f"job{number}")
        waiting = list(bodies(healthy, ranks, steps_per_frame=1))
        while waiting and not stop.is_set():
            try:
                with Client(collector.url, collector.environment["PACELINE_TOKEN"]) as client:
                    while waiting and not stop.is_set():
                        client.post_frames(waiting[0])
                        with lock:
                            acknowledged.append(waiting.pop(0))
            except TransportError:
                time.sleep(0.05)  # it is down: keep the frames, send them again

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for kills in range(1, 3):
        wait_until(lambda kills=kills: len(acknowledged) >= 20 * kills, 20)
        collector.kill()
        with lock:
            promised = {bytes(part) for body in acknowledged for part in split_frames(body)}
        stored = collector.stored()
        assert promised <= {row[0] for row in stored}
        assert len(stored) == len({row[0] for row in stored})
        collector.start()
    for thread in threads:
        thread.join(30)
    stop.set()
    assert len(acknowledged) == 180
    stored = collector.stored()
    assert len(stored) == len({row[0] for row in stored}) == 720
    for number in range(3):
        row = wait_for_state(collector.client(), f"job{number}", "ended")
        assert row["steps"] == 60


def told(client: Client) -> tuple[Any, Any]:
    """Return report and steps; whether the job counts as silent by now is a matter of time."""
    report = client.report("train")
    report["job"].pop("state")
    return report, client.get_json("/v1/jobs/train/steps", phases=1)


def test_a_restart_gives_the_same_report_steps_and_incidents(
    collector: CollectorProcess, slow_backward: Simulated
) -> None:
    client = collector.client()
    posted = list(bodies(slow_backward, senders(slow_backward)))
    post_all(client, posted[:13])
    wait_until(lambda: client.report("train")["job"]["steps"] == 129)
    wait_until(lambda: client.get_json("/v1/jobs/train/incidents")["incidents"])
    before = told(client)
    assert before[0]["verdict"] == "straggler"
    collector.kill()
    collector.start()
    client = collector.client()
    wait_until(lambda: is_ready(client))
    assert told(client) == before
    post_all(client, posted[13:])
    wait_for_state(client, "train", "ended")
    whole = told(client)
    assert whole[0]["job"]["steps"] == 160
    assert len(client.get_json("/v1/jobs/train/incidents")["incidents"]) == 1
    assert collector.stop() == 0
    collector.start()
    client = collector.client()
    assert told(client) == whole
    stored = collector.rows("SELECT count(*), min(step), max(step) FROM step_summaries")
    assert stored == [(160, 0, 159)]


def test_an_ended_job_whose_state_was_lost_is_analysed_again_on_request(
    collector: CollectorProcess, slow_backward: Simulated
) -> None:
    client = collector.client()
    post_all(client, bodies(slow_backward, senders(slow_backward), steps_per_frame=40))
    wait_for_state(client, "train", "ended")
    before = client.report("train")
    assert collector.stop() == 0
    connection = sqlite3.connect(collector.database)
    connection.execute(
        "UPDATE job_attempts SET state = NULL, report_frame_id = 0, last_seen_wall_ns = 1"
    )
    connection.commit()
    connection.close()
    collector.start()
    client = collector.client()
    assert client.report("train") == before


def test_two_jobs_of_one_name_are_two_attempts_unless_their_run_is_the_same(
    collector: CollectorProcess, healthy: Simulated, slow_backward: Simulated
) -> None:
    client = collector.client()
    post_all(client, bodies(slow_backward, senders(slow_backward), steps_per_frame=80))
    second = senders(healthy, run_id="run-2", incarnation="b" * 32)
    for sender in second:
        sender.incarnation = f"{sender.rank + 16:032x}"
    post_all(client, bodies(healthy, second, steps_per_frame=30))
    restarted = senders(healthy, run_id="run-2", attempt=1)
    for sender in restarted:
        sender.incarnation = f"{sender.rank + 32:032x}"
    post_all(client, bodies(healthy, restarted, steps_per_frame=30, end=False))
    assert [row["job"] for row in client.jobs()] == ["train"]
    detail = client.get_json("/v1/jobs/train")
    assert detail["attempt"] == 3
    told = [(a["attempt"], a["run_id"], a["launch_attempt"]) for a in detail["attempts"]]
    assert told == [(3, "run-2", 1), (2, "run-2", 0), (1, "run-1", 0)]
    wait_until(lambda: client.report("train", 1)["job"]["state"] == "ended")
    assert client.report("train", 1)["verdict"] == "straggler"
    assert client.report("train", 2)["verdict"] != "straggler"
    assert client.report("train")["job"]["state"] == "running"


def test_the_first_start_writes_a_token_that_clients_find(
    tmp_path: Path, healthy: Simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = CollectorProcess(tmp_path / "state")
    process.environment = {}
    process.start()
    try:
        path = process.directory / "token"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert str(path) in process.log.read_text()
        monkeypatch.setenv("PACELINE_STATE_DIR", str(process.directory))
        body = next(bodies(healthy, senders(healthy)))
        assert Client(process.url).post_frames(body)["accepted"] == 4
        assert path.read_bytes().strip() not in process.database.read_bytes()
    finally:
        assert process.stop() == 0


def refuses(process: CollectorProcess, *arguments: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        process.command(*arguments),
        env={**process.environ(), **environment},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2, done
    assert "Traceback" not in done.stderr
    return done.stderr


def test_it_does_not_listen_beyond_loopback_without_a_token(tmp_path: Path) -> None:
    process = CollectorProcess(tmp_path / "state")
    process.environment = {}
    process.directory.mkdir()
    said = refuses(process, "--host", "0.0.0.0", environment={})
    assert "PACELINE_TOKEN" in said
    said = refuses(process, "--host", "0.0.0.0", environment={"PACELINE_TOKEN": "short"})
    assert "at least 16" in said
    assert not (process.directory / "token").exists()


def test_beyond_loopback_reads_need_a_token_too(tmp_path: Path) -> None:
    process = CollectorProcess(tmp_path / "state").start("--host", "0.0.0.0")
    try:
        process.url = process.url.replace("0.0.0.0", "127.0.0.1")
        with pytest.raises(TransportError, match="401"):
            process.client("").jobs()
        assert process.client().jobs() == []
        assert process.client("").get_json("/healthz") == {"ok": True}
    finally:
        assert process.stop() == 0


def test_a_second_collector_on_the_same_database_is_refused(collector: CollectorProcess) -> None:
    said = refuses(collector, environment={})
    assert f"pid {collector.process.pid}" in said
    assert collector.client().get_json("/readyz")["ready"]


def test_a_database_of_a_newer_program_is_refused_with_the_remedy(
    collector: CollectorProcess,
) -> None:
    collector.stop()
    connection = sqlite3.connect(collector.database)
    connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.commit()
    connection.close()
    said = refuses(collector, environment={})
    assert "9999" in said
    assert "newer version" in said


def test_a_file_that_is_no_database_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "paceline.db").write_bytes(b"something else" * 100)
    refused = CollectorProcess(tmp_path)
    done = subprocess.run(
        refused.command(), env=refused.environ(), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert "paceline.db cannot be used: " in last
    assert "file is not a database" in last
    assert "Traceback" not in done.stderr


def test_a_port_that_is_taken_is_told_with_the_remedy(collector: CollectorProcess) -> None:
    port = collector.url.rpartition(":")[2]
    other = {"PACELINE_STATE_DIR": str(collector.directory / "other")}
    assert "--port" in refuses(collector, "--port", port, environment=other)


def test_raw_frames_stay_under_their_cap_and_what_went_is_counted(
    tmp_path: Path, slow_backward: Simulated
) -> None:
    cap_bytes = 30_000
    process = CollectorProcess(
        tmp_path / "state", PACELINE_SERVE_RAW_RETENTION_BYTES=str(cap_bytes)
    ).start()
    try:
        client = process.client()
        posted = list(bodies(slow_backward, senders(slow_backward), steps_per_frame=5))
        sent_bytes = sum(map(len, posted))
        assert sent_bytes > 2 * cap_bytes
        post_all(client, posted)
        report = client.report("train")
        wait_for_state(client, "train", "ended")
        process.stop()
        process.start()  # retention has its first pass at the start
        client = process.client()
        query = "SELECT sum(body_bytes), count(*) FROM frames"
        wait_until(lambda: process.rows(query)[0][0] <= cap_bytes)
        kept = process.rows(query)[0][1]
        dropped = dict(process.rows("SELECT reason, count FROM drops WHERE stage = 'store'"))
        assert dropped["retention_frames"] + kept == 128
        assert client.report("train")["verdict"] == "straggler"
        assert client.post_frames(posted[0])["duplicate"] == 4
        assert report["job"]["name"] == "train"
    finally:
        assert process.stop() == 0


def test_the_database_is_private_and_its_writes_reach_the_disk(
    collector: CollectorProcess,
) -> None:
    assert stat.S_IMODE(os.stat(collector.database).st_mode) == 0o600
    assert collector.rows("PRAGMA journal_mode") == [("wal",)]
