from __future__ import annotations

import itertools
import socket
import sqlite3
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paceline_service.client import ProblemError
from tests.integration.collector.kit import (
    TOKEN,
    CollectorProcess,
    RankSender,
    bodies,
    is_ready,
    senders,
    wait_until,
)
from tests.simulator.job import Simulated


def test_a_full_queue_answers_429_and_what_is_sent_again_is_stored(
    tmp_path: Path, healthy: Simulated
) -> None:
    process = CollectorProcess(tmp_path / "state", PACELINE_SERVE_QUEUE_BYTES="4096").start()
    refusals: list[tuple[int, float | None]] = []

    def send(number: int) -> None:
        ranks = senders(healthy, job=f"job{number}")
        with process.client() as client:
            for body in bodies(healthy, ranks, steps_per_frame=5):
                while True:
                    try:
                        client.post_frames(body)
                    except ProblemError as error:
                        refusals.append((error.status, error.retry_after_s))
                        time.sleep(0.02)
                    else:
                        break

    threads = [threading.Thread(target=send, args=(n,), daemon=True) for n in range(8)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(40)
        assert set(refusals) == {(429, 1.0)}
        assert process.rows("SELECT count(*) FROM frames") == [(8 * 12 * 4,)]
        text = b"".join(process.client().stream("/metrics")).decode()
        assert f'paceline_ingest_refused_total{{reason="commit_queue"}} {len(refusals)}.0' in text
    finally:
        assert process.stop() == 0


def test_bodies_that_are_being_read_are_bounded_and_one_token_shuts_out_no_other(
    tmp_path: Path,
) -> None:
    process = CollectorProcess(tmp_path / "state", PACELINE_SERVE_READING_BYTES="8192").start()
    frames = (
        RankSender(rank=0, world_size=1, groups=[("dp0", (0,))], job=f"job{number}").frame([])
        for number in itertools.count()
    )
    own = process.client()
    other = process.client(own.make_token(["ingest"])["token"])
    parts = urlsplit(process.url)
    try:
        with socket.create_connection((parts.hostname, parts.port)) as slow:
            slow.sendall(
                f"POST /v1/frames HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 4090\r\n"
                f"Authorization: Bearer {TOKEN}\r\n\r\nthe beginning".encode()
            )

            def refused() -> ProblemError | None:
                try:
                    own.post_frames(next(frames))
                except ProblemError as error:
                    return error
                return None

            told = wait_until(refused)
            assert (told.status, told.kind, told.retry_after_s) == (429, "overloaded", 1)
            assert "half of it for one token" in str(told)
            assert other.post_frames(next(frames))["accepted"] == 1
        wait_until(lambda: not refused())
        text = b"".join(own.stream("/metrics")).decode()
        assert 'paceline_access_refused_total{reason="bodies"}' in text
    finally:
        assert process.stop() == 0


def rename(database: Path, old: str, new: str) -> None:
    connection = sqlite3.connect(database, timeout=10)
    connection.execute(f"ALTER TABLE {old} RENAME TO {new}")
    connection.close()


def test_a_database_that_takes_no_writes_acknowledges_nothing_and_readyz_says_so(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    posted = list(bodies(healthy, senders(healthy)))
    client = collector.client()
    client.post_frames(posted[0])
    rename(collector.database, "frames", "away")
    with pytest.raises(ProblemError) as caught:
        client.post_frames(posted[1])
    assert (caught.value.status, caught.value.retry_after_s) == (503, 5.0)
    assert not is_ready(client)
    rename(collector.database, "away", "frames")
    assert client.post_frames(posted[1])["accepted"] == 4
    assert is_ready(client)
    wait_until(lambda: client.report("train")["job"]["steps"] == 19)
