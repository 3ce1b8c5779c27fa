"""The way to a receiver: verified TLS, names that lie, answers without end; Slack's webhook."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import trustme

from paceline.errors import ConfigError
from paceline_service.notify.channels.base import Audience
from paceline_service.notify.channels.slack import SlackWebhook
from paceline_service.notify.http import (
    MAX_ANSWER_BYTES,
    NotSentError,
    Outgoing,
    UnansweredError,
)
from paceline_service.notify.message import pack, unpack
from paceline_service.notify.proxy import make_proxy
from paceline_service.notify.secret import Secret
from tests.integration.notify.kit import Receiver
from tests.unit.service.test_notify_formats import EVENTS, SLACK

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> tuple[trustme.CA, Path]:
    authority, path = trustme.CA(), tmp_path_factory.mktemp("pki") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return authority, path


def behind_tls(authority: trustme.CA, name: str) -> Iterator[Receiver]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    made = Receiver(tls=context).start()
    yield made
    made.stop()


@pytest.fixture
def secure(pki: tuple[trustme.CA, Path]) -> Iterator[Receiver]:
    yield from behind_tls(pki[0], "127.0.0.1")


@pytest.fixture
def misnamed(pki: tuple[trustme.CA, Path]) -> Iterator[Receiver]:
    yield from behind_tls(pki[0], "other.example")


def test_a_certificate_is_verified_against_authority_and_name(
    pki: tuple[trustme.CA, Path], secure: Receiver, misnamed: Receiver
) -> None:
    trusting = Outgoing(ca_file=pki[1])
    assert trusting.send("POST", secure.url, b"{}", {}).status == 200
    with pytest.raises(NotSentError, match="NOTIFY_CA_FILE"):
        Outgoing().send("POST", secure.url, b"{}", {})
    with pytest.raises(NotSentError, match="certificate is refused"):
        trusting.send("POST", misnamed.url, b"{}", {})
    assert len(secure.requests) == 1
    assert not misnamed.requests


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.1", "::1", "0.0.0.0"])
def test_a_name_server_that_lies_leads_nowhere(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    def lie(_: str, port: int, **__: Any) -> list[tuple[Any, ...]]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        good = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))
        return [good, (family, socket.SOCK_STREAM, 6, "", (address, receiver.port))]

    monkeypatch.setattr(socket, "getaddrinfo", lie)
    with pytest.raises(ConfigError, match="nothing is sent there"):
        Outgoing(["hooks.example"]).send("POST", "http://hooks.example/", b"secret", {})
    assert not receiver.requests


def test_a_redirect_is_an_answer_and_not_followed(receiver: Receiver) -> None:
    receiver.respond = lambda _: (307, {"Location": f"{receiver.url}/elsewhere"}, b"")
    assert Outgoing().send("POST", f"{receiver.url}/x", b"{}", {}).status == 307
    assert [one.path for one in receiver.requests] == ["/x"]


def test_an_answer_without_end_is_cut_off(receiver: Receiver) -> None:
    receiver.respond = lambda _: (200, {}, b"x" * (MAX_ANSWER_BYTES + 1000))
    answer = Outgoing().send("GET", receiver.url, None, {})
    assert len(answer.body) == MAX_ANSWER_BYTES


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 200 OK\r\n\r\nx"])
def test_a_receiver_that_answers_drop_by_drop_is_given_up_in_time(said: bytes) -> None:
    """Each byte comes within any timeout of a socket; together they would take for ever."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(said)
                while not done.wait(0.1):
                    try:
                        peer.sendall(b"z")
                    except OSError:
                        return

        threading.Thread(target=drip, daemon=True).start()
        url, began_s = f"http://127.0.0.1:{server.getsockname()[1]}/", time.monotonic()
        if said:  # its status is an answer, whatever does not follow
            assert Outgoing(timeout_s=0.7).send("POST", url, b"{}", {}).status == 200
        else:
            with pytest.raises(UnansweredError, match="no answer in time"):
                Outgoing(timeout_s=0.7).send("POST", url, b"{}", {})
        assert time.monotonic() - began_s < 10
        done.set()


@pytest.fixture
def proxy() -> Iterator[tuple[str, list[str]]]:
    """An HTTP proxy that leads every tunnel to this machine, and what it was asked."""
    asked: list[str] = []

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def serve(peer: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += peer.recv(1)
        asked.append(head.split(b"\r\n")[0].decode())
        name = asked[-1].split()[1]
        if name.startswith("forbidden"):
            peer.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            peer.close()
            return
        onward = socket.create_connection(("127.0.0.1", int(name.rpartition(":")[2])))
        peer.sendall(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n")
        threading.Thread(target=pump, args=(onward, peer), daemon=True).start()
        pump(peer, onward)
        onward.close()
        peer.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = server.accept()
                threading.Thread(target=serve, args=(peer,), daemon=True).start()

    server = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}", asked
    server.close()


def test_a_proxy_leads_to_receivers_and_sees_nothing_of_what_they_are_told(
    pki: tuple[trustme.CA, Path], misnamed: Receiver, proxy: tuple[str, list[str]]
) -> None:
    url, asked = proxy
    through = Outgoing(ca_file=pki[1], proxy=make_proxy(url, ["*.svc"]))
    answer = through.send("POST", f"https://other.example:{misnamed.port}/x", b'{"a":1}', {})
    assert answer.status == 200
    assert asked == [f"CONNECT other.example:{misnamed.port} HTTP/1.1"]
    assert misnamed.requests[0].json == {"a": 1}
    with pytest.raises(NotSentError, match="certificate is refused"):
        through.send("POST", f"https://someone.example:{misnamed.port}/", b"{}", {})
    with pytest.raises(NotSentError, match=r"opens no tunnel: HTTP/1\.1 403"):
        through.send("POST", "https://forbidden.example/", b"{}", {})
    with pytest.raises(NotSentError, match="has no address"):
        through.send("POST", "https://nobody.invalid.svc/", b"{}", {})
    assert len(asked) == 3, "the last one is reached without the proxy"


def test_an_incoming_webhook_of_slack_says_each_change_anew(receiver: Receiver) -> None:
    receiver.respond = lambda _: (200, {}, b"ok")
    url = Secret.of("URL", f"{receiver.url}/services/T0/B0/secret-part")
    channel = SlackWebhook("slack", Audience(min_severity="info"), Outgoing(), url=url)
    for message in EVENTS[:5]:
        assert channel.send(message, "").verdict == "delivered"
    for request in receiver.requests:
        jsonschema_rs.validator_for(SLACK).validate(request.json)
    texts = [one.json["text"] for one in receiver.requests]
    assert texts[0].startswith("Open (page): llm: Rank 5 on node-a")
    assert texts[4] == "Incident 17 of llm: something"
    for status, body, verdict in ((404, b"no_service", "again"), (400, b"invalid", "refused")):
        receiver.respond = lambda _, s=status, b=body: (s, {}, b)  # type: ignore[misc]
        result = channel.send(EVENTS[0], "")
        assert result.verdict == verdict
        assert body.decode() in result.reason
        assert "secret-part" not in result.reason


def test_messages_that_an_earlier_version_stored_can_be_read(repository: Path) -> None:
    stored = (repository / "tests/contract/golden/stored-message-v1.json").read_text()
    message = unpack(stored)
    assert (message.event, message.sequence, message.incident.job) == ("opened", 1, "llm")
    now = json.loads(pack(message))
    assert now["incident"].items() >= json.loads(stored)["incident"].items()
