from __future__ import annotations

import http.client
import json
import socket
import subprocess
from typing import Any
from urllib.parse import urlsplit

import pytest

from paceline.wire.codec import HEADER
from paceline_service.client import Client, ProblemError
from tests.integration.collector.kit import TOKEN, CollectorProcess, bodies, senders
from tests.simulator.job import Simulated


def refused(client: Client, body: bytes) -> tuple[int, str]:
    with pytest.raises(ProblemError) as caught:
        client.post_frames(body)
    return caught.value.status, caught.value.problem["type"].rpartition(":")[2]


def raw_request(
    collector: CollectorProcess, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(collector.url).netloc, timeout=10)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_writes_need_a_known_token_and_reads_do_not_on_loopback(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    body = next(bodies(healthy, senders(healthy, job="guarded")))
    assert raw_request(shared, "POST", "/v1/frames", body)[0] == 401
    assert refused(shared.client("wrong"), body) == (401, "unauthenticated")
    assert raw_request(shared, "GET", "/v1/jobs")[0] == 200
    assert raw_request(shared, "GET", "/v1/jobs", Authorization="Bearer wrong")[0] == 401
    assert "guarded" not in [row["job"] for row in Client(shared.url, "").jobs()]


def test_a_token_of_a_job_prefix_writes_only_there(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    made = subprocess.run(
        shared.command("--new-token", "ingest", "--job-prefix", "team-a"),
        env=shared.environ(), capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    client = shared.client(made.stdout.strip())
    inside = next(bodies(healthy, senders(healthy, job="team-a.llm")))
    outside = next(bodies(healthy, senders(healthy, job="team-ab")))
    assert refused(client, outside) == (403, "forbidden")
    answer = client.post_frames(outside + inside)
    assert (answer["accepted"], len(answer["rejected"])) == (4, 4)
    with pytest.raises(ProblemError) as caught:
        client.jobs()
    assert caught.value.status == 403
    assert not shared.rows("SELECT 1 FROM jobs WHERE name = 'team-ab'")
    assert made.stdout.strip().encode() not in shared.database.read_bytes()


def test_a_body_over_the_limit_is_refused_before_it_was_read(shared: CollectorProcess) -> None:
    host, port = urlsplit(shared.url).netloc.split(":")
    head = (
        f"POST /v1/frames HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n"
        f"Content-Length: {1 << 30}\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(64).startswith(b"HTTP/1.1 413")


def test_a_chunked_body_over_the_limit_is_refused(shared: CollectorProcess) -> None:
    connection = http.client.HTTPConnection(urlsplit(shared.url).netloc, timeout=10)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    chunk = bytes(1 << 20)
    try:
        connection.request("POST", "/v1/frames", iter([chunk] * 9), headers, encode_chunked=True)
        status = connection.getresponse().status
    except (BrokenPipeError, ConnectionResetError):
        status = connection.getresponse().status
    finally:
        connection.close()
    assert status == 413


def test_frames_that_promise_too_much_are_refused_before_unpacking(
    shared: CollectorProcess,
) -> None:
    header = HEADER.pack(b"PLWF", 1, 1, 0, 0, 4 << 20, 0)
    assert refused(shared.client(), header * 17) == (413, "body-too-large")


def test_a_corrupt_frame_is_rejected_and_its_neighbours_are_accepted(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    ranks = senders(healthy, job="corrupt")
    frames = [sender.frame(healthy.rows[sender.rank][:50]) for sender in ranks]
    torn = bytearray(frames[1])
    torn[-1] ^= 0xFF
    answer = shared.client().post_frames(frames[0] + torn + frames[2] + frames[3])
    assert answer["accepted"] == 3
    assert [item["offset"] for item in answer["rejected"]] == [len(frames[0])]
    assert "checksum" in answer["rejected"][0]["reason"]
    truncated = shared.client().post_frames(frames[1] + frames[0][:-10])
    assert (truncated["accepted"], len(truncated["rejected"])) == (1, 1)
    newer = bytearray(frames[0])
    newer[4] = 9
    assert refused(shared.client(), bytes(newer)) == (400, "no-frame")
    assert refused(shared.client(), b"") == (400, "no-frame")
    assert refused(shared.client(), b"not a frame at all, but long enough") == (400, "no-frame")
    text = b"".join(shared.client().stream("/metrics")).decode()
    assert 'paceline_ingest_rejected_total{reason="corrupt"}' in text


@pytest.mark.parametrize("name", ["run_id", "node", "clock_domain"])
def test_text_that_no_database_holds_is_rejected_and_its_neighbours_are_accepted(
    shared: CollectorProcess, healthy: Simulated, name: str
) -> None:
    ranks = senders(healthy, job="odd")
    frames = [sender.frame(healthy.rows[sender.rank][:50]) for sender in ranks[:1]]
    setattr(ranks[1], name, "a\0b")
    frames.append(ranks[1].frame(healthy.rows[1][:50]))
    (rejected,) = shared.client().post_frames(b"".join(frames))["rejected"]
    assert rejected["offset"] == len(frames[0])
    assert f"{name} has a NUL" in rejected["reason"]


def test_a_rank_outside_its_job_is_rejected_with_a_reason(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    first = senders(healthy, job="grown")
    assert shared.client().post_frames(first[0].frame(healthy.rows[0][:20]))["accepted"] == 1
    more = senders(healthy, job="grown")[3]
    more.rank, more.world_size, more.incarnation = 7, 8, "7" * 32
    answer = shared.client().post_frames(more.frame(healthy.rows[3][:20]))
    assert answer["accepted"] == 0
    assert "rank 7" in answer["rejected"][0]["reason"]


def test_duplicates_count_once_within_a_body_between_bodies_and_after_a_restart(
    collector: CollectorProcess, healthy: Simulated
) -> None:
    body = next(bodies(healthy, senders(healthy)))
    client = collector.client()
    answer = client.post_frames(body + body)
    assert (answer["accepted"], answer["duplicate"]) == (4, 4)
    assert client.post_frames(body)["duplicate"] == 4
    collector.kill()
    collector.start()
    answer = collector.client().post_frames(body)
    assert (answer["accepted"], answer["duplicate"]) == (0, 4)
    assert collector.rows("SELECT count(*), count(DISTINCT body) FROM frames") == [(4, 4)]


def test_a_foreign_host_header_is_refused(shared: CollectorProcess) -> None:
    status, problem = raw_request(shared, "GET", "/v1/jobs", Host="evil.example")
    assert (status, problem["type"]) == (421, "urn:paceline:problem:untrusted-host")
    assert raw_request(shared, "GET", "/v1/jobs", Host="localhost:1")[0] == 200


def test_the_page_carries_security_headers(shared: CollectorProcess) -> None:
    connection = http.client.HTTPConnection(urlsplit(shared.url).netloc, timeout=10)
    connection.request("GET", "/")
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status == 200
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_rows_that_make_no_sense_are_counted_and_the_job_is_analysed(
    shared: CollectorProcess, healthy: Simulated
) -> None:
    sender = senders(healthy, job="nonsense")[0]
    rows = [list(row) for row in healthy.rows[0][:40]]
    rows[0][0] = 77
    rows[1][4] = -5
    rows[2][2] = 4000
    rows[2][0] = 1
    client = shared.client()
    assert client.post_frames(sender.frame([tuple(row) for row in rows]))["accepted"] == 1

    def dropped() -> Any:
        ranks = client.get_json("/v1/jobs/nonsense/ranks")["ranks"]
        return ranks[0]["dropped"] if ranks else None

    assert dropped() == {"unknown_kind": 1, "out_of_range": 1, "unknown_group": 1}
    assert not client.report("nonsense")["data"]["complete"]


def test_frames_without_any_record_are_taken(shared: CollectorProcess, healthy: Simulated) -> None:
    sender = senders(healthy, job="quiet")[0]
    assert shared.client().post_frames(sender.frame([]))["accepted"] == 1
    assert shared.client().report("quiet")["verdict"] == "insufficient_evidence"
