from __future__ import annotations

import http.client
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from paceline.wire.codec import HEADER, MAGIC, MAX_PACKED_BYTES, MAX_UNPACKED_BYTES, VERSION, ZLIB
from paceline_service.client import ProblemError
from tests.integration.collector.kit import TOKEN, CollectorProcess, RankSender, wait_until

pytestmark = pytest.mark.integration
TIMEOUT_S = 1.0
CONNECTIONS = 8


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector with small limits."""
    process = CollectorProcess(
        tmp_path_factory.mktemp("strict") / "state",
        PACELINE_SERVE_MAX_CONNECTIONS=str(CONNECTIONS),
        PACELINE_SERVE_REQUEST_TIMEOUT_S=str(TIMEOUT_S),
        PACELINE_SERVE_MAX_LAUNCHES_PER_DAY="3",
    ).start()
    yield process
    assert process.stop() == 0


def connect(collector: CollectorProcess) -> socket.socket:
    parts = urlsplit(collector.url)
    made = socket.create_connection((parts.hostname, parts.port), timeout=20)
    made.settimeout(20)
    return made


def until_closed(connection: socket.socket) -> bytes:
    """Return what came before the other end closed the connection."""
    got = b""
    try:
        while chunk := connection.recv(65536):
            got += chunk
    except ConnectionResetError:
        pass
    return got


def refused(collector: CollectorProcess, reason: str) -> float:
    text = b"".join(collector.client().stream("/metrics")).decode()
    for line in text.splitlines():
        if line.startswith(f'paceline_access_refused_total{{reason="{reason}"}}'):
            return float(line.split()[-1])
    return 0.0


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (b"", "slow_head"),
        (b"GET /healthz HT", "slow_head"),
        (b"\r\n", "slow_head"),
        (b"POST /v1/frames HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n", "slow_head"),
        (
            b"POST /v1/frames HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer "
            + TOKEN.encode() + b"\r\nContent-Length: 99\r\n\r\nPLWF",
            "slow_body",
        ),
        (
            b"POST /v1/frames HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99\r\n\r\nPLWF",
            "slow_body",
        ),
    ],
    ids=["nothing", "half a line", "an empty line", "half the headers", "half a body",
         "half a body that nobody wants"],
)  # fmt: skip
def test_a_client_that_does_not_go_on_is_cut_off_and_counted(
    strict: CollectorProcess, sent: bytes, reason: str
) -> None:
    before = refused(strict, reason)
    with connect(strict) as connection:
        connection.sendall(sent)
        got = until_closed(connection)
    assert b"200 OK" not in got
    assert refused(strict, reason) == before + 1


def test_headers_that_trickle_in_are_cut_off_too(strict: CollectorProcess) -> None:
    def trickled(connection: socket.socket) -> int:
        connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        for number in range(200):
            try:
                connection.sendall(b"X-%d: y\r\n" % number)
            except OSError:
                return number
            time.sleep(0.1)
        return 200

    with connect(strict) as connection:
        assert trickled(connection) < 200


@pytest.mark.parametrize("route", ["PUT /v1/jobs/x/settings", "POST /v1/tokens", "POST /v1/frames"])
def test_a_client_that_goes_away_in_its_body_is_no_error_of_the_collector(
    strict: CollectorProcess, route: str
) -> None:
    before = len(strict.log.read_text())
    with connect(strict) as connection:
        connection.sendall(
            f"{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Length: 99\r\n\r\n{{".encode()
        )
        connection.shutdown(socket.SHUT_WR)
        until_closed(connection)
    assert strict.client().get_json("/healthz") == {"ok": True}
    log = strict.log.read_text()[before:]
    assert "Traceback" not in log
    assert "request failed" not in log


def test_a_kept_connection_may_pause_between_requests(strict: CollectorProcess) -> None:
    connection = http.client.HTTPConnection(urlsplit(strict.url).netloc, timeout=20)
    for _ in range(2):
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        assert answer.status == 200
        answer.read()
        time.sleep(3 * TIMEOUT_S)
    connection.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 40_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X-Many: 0123456789\r\n" * 3000,
        b"GET / HTTP/1.1\r\nX-Endless: " + b"a" * 300_000,
    ],
    ids=["a long path", "a long header", "many headers", "a header without end"],
)
def test_a_request_line_and_headers_are_bounded(strict: CollectorProcess, head: bytes) -> None:
    with connect(strict) as connection:
        try:
            connection.sendall(head)
        except OSError:
            return  # it hung up before it had read all of it
        got = until_closed(connection)
    assert got == b"" or got.startswith(b"HTTP/1.1 431 ")


def test_what_is_no_http_is_counted_and_writes_no_line_of_the_log(
    strict: CollectorProcess,
) -> None:
    before, lines = refused(strict, "no_http"), strict.log.read_text().count("Invalid")
    with connect(strict) as connection:
        connection.sendall(b"GET / FOO\r\n\r\n")
        assert until_closed(connection).startswith(b"HTTP/1.1 400 ")
    assert refused(strict, "no_http") == before + 1
    assert strict.log.read_text().count("Invalid") == lines


def test_more_connections_than_may_be_are_told_so_and_those_before_go_on(
    strict: CollectorProcess,
) -> None:
    kept = [
        http.client.HTTPConnection(urlsplit(strict.url).netloc, timeout=20)
        for _ in range(CONNECTIONS)
    ]

    def opened() -> bool:
        for connection in kept:
            connection.close()
            connection.request("GET", "/healthz")
            if connection.getresponse().read() != b'{"ok":true}':
                return False
        return True

    wait_until(opened)  # those of other tests may still be open
    with connect(strict) as one_more:
        got = until_closed(one_more)
    assert got.startswith(b"HTTP/1.1 503 ")
    assert json.loads(got.partition(b"\r\n\r\n")[2])["type"].endswith(":too-many-connections")
    for connection in kept:
        connection.request("GET", "/healthz")
        assert connection.getresponse().read() == b'{"ok":true}'
        connection.close()
    wait_until(lambda: refused(strict, "connections") >= 1)


def test_a_client_that_never_reads_its_answers_is_cut_off(strict: CollectorProcess) -> None:
    before = refused(strict, "slow_reader")
    asked = b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    with connect(strict) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(asked * 500)  # far more than fits between the two
        wait_until(lambda: refused(strict, "slow_reader") == before + 1, 30)


def packed(raw: bytes, promised: int | None = None) -> bytes:
    """A frame of any content that promises any size."""
    body = zlib.compress(raw, 9)
    size = len(raw) if promised is None else promised
    return HEADER.pack(MAGIC, VERSION, ZLIB, 0, len(body), size, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (packed(bytes(MAX_UNPACKED_BYTES)) * 17, 413, "promise"),
        (packed(bytes(64 << 20), promised=1000), 400, "another size"),
        (packed(bytes(64 << 20)), 400, "the limits are"),
        (packed(packed(bytes(1 << 20))), 400, "cannot be decoded"),
        (packed(zlib.compress(zlib.compress(bytes(16 << 20)))), 400, "cannot be decoded"),
        (packed(b"\x91" * 100_000), 400, "cannot be decoded"),
        (packed(b"\xdf\xff\xff\xff\xff"), 400, "cannot be decoded"),
        (packed(b"\xc6\xff\xff\xff\xff"), 400, "cannot be decoded"),
        (packed(b"", promised=0), 400, "1 to"),
        (HEADER.pack(MAGIC, VERSION, ZLIB, 0, MAX_PACKED_BYTES + 1, 9, 0), 400, "truncated"),
        (struct.pack("<4s", MAGIC) * 1000, 400, "truncated"),
    ],
    ids=["many bombs that tell", "a bomb that lies", "a bomb that tells", "a frame in a frame",
         "bombs within bombs", "a deep nest", "a map of four billion", "a text of four gigabytes",
         "nothing", "more than there is", "no header"],
)  # fmt: skip
def test_what_would_grow_without_bound_when_unpacked_is_refused(
    strict: CollectorProcess, body: bytes, status: int, said: str
) -> None:
    with pytest.raises(ProblemError, match=said) as caught:
        strict.client().post_frames(body)
    assert caught.value.status == status


def test_memory_stays_small_under_bombs(strict: CollectorProcess) -> None:
    def resident_bytes() -> int:
        with open(f"/proc/{strict.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096

    bomb = packed(bytes(MAX_UNPACKED_BYTES), promised=MAX_UNPACKED_BYTES - 1) * 15
    with strict.client() as client:
        for _ in range(3):
            with pytest.raises(ProblemError):
                client.post_frames(bomb)
        before = resident_bytes()
        for _ in range(30):
            with pytest.raises(ProblemError):
                client.post_frames(bomb)
    assert resident_bytes() - before < 64 << 20


def test_a_token_that_begins_too_many_launches_is_refused_by_frame(
    strict: CollectorProcess,
) -> None:
    def frame_of(job: str) -> bytes:
        return RankSender(rank=0, world_size=1, groups=[("dp0", (0,))], job=job).frame([])

    client = strict.client()
    body = b"".join(frame_of(f"job-{number}") for number in range(5))
    answer = client.post_frames(body)
    assert answer["accepted"] == 3
    assert [item["problem"] for item in answer["rejected"]] == ["forbidden"] * 2
    assert "PACELINE_SERVE_MAX_LAUNCHES_PER_DAY" in answer["rejected"][0]["reason"]
    assert client.post_frames(body)["duplicate"] == 3, "those that were begun go on"
    text = b"".join(client.stream("/metrics")).decode()
    assert 'paceline_ingest_rejected_total{reason="cardinality"} 4.0' in text


def test_every_answer_carries_the_headers_that_bind_browsers(strict: CollectorProcess) -> None:
    for path, host, status in (
        ("/", "127.0.0.1", 200),
        ("/static/main.js", "127.0.0.1", 200),
        ("/v1/jobs", "127.0.0.1", 200),
        ("/v1/nothing", "127.0.0.1", 404),
        ("/v1/tokens", "127.0.0.1", 401),
        ("/", "evil.example", 421),
    ):
        connection = http.client.HTTPConnection(urlsplit(strict.url).netloc, timeout=20)
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        assert answer.status == status, path
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert answer.headers["X-Frame-Options"] == "DENY"
        assert "Strict-Transport-Security" not in answer.headers, "there is no TLS here"
        assert "Server" not in answer.headers
        connection.close()


def test_addresses_that_a_client_claims_are_believed_of_trusted_proxies_only(
    strict: CollectorProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def address(collector: CollectorProcess) -> str:
        connection = http.client.HTTPConnection(urlsplit(collector.url).netloc, timeout=20)
        headers = {
            "Authorization": f"Bearer {TOKEN}", "X-Forwarded-For": "203.0.113.7",
            "Content-Type": "application/json",
        }  # fmt: skip
        connection.request("POST", "/v1/tokens", json.dumps({"scopes": ["read"]}), headers)
        assert connection.getresponse().status == 201
        connection.close()
        return str(collector.client().get_json("/v1/audit")["entries"][0]["address"])

    assert address(strict) == "127.0.0.1"
    directory = tmp_path_factory.mktemp("behind") / "state"
    behind = CollectorProcess(directory, PACELINE_SERVE_TRUSTED_PROXIES='["127.0.0.1"]').start()
    assert address(behind) == "203.0.113.7"
    with pytest.raises(ProblemError, match="needs a token"):
        behind.client("").jobs()  # behind an ingress nobody reads without a token
    assert behind.stop() == 0


def test_reads_are_open_to_this_machine_and_not_through_a_proxy_on_it(
    strict: CollectorProcess,
) -> None:
    def status(**headers: str) -> int:
        connection = http.client.HTTPConnection(urlsplit(strict.url).netloc, timeout=20)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", "/v1/jobs", headers=sent)
        answer = connection.getresponse().status
        connection.close()
        return answer

    assert status() == status(Host="localhost:1") == 200
    assert status(X_Forwarded_For="203.0.113.7") == 401
    assert status(Via="1.1 proxy") == 401
    assert status(Forwarded="for=203.0.113.7") == 401
    assert status(X_Forwarded_For="203.0.113.7", Authorization=f"Bearer {TOKEN}") == 200
