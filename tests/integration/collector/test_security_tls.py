from __future__ import annotations

import http.client
import signal
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme

from paceline.doctor.check import FAIL, OK
from paceline.doctor.collector import collector as doctor
from paceline.errors import TransportError
from paceline_service.client import Client
from tests.integration.collector.kit import TOKEN, CollectorProcess, wait_until
from tests.integration.sidecar_kit import Processes

pytestmark = pytest.mark.integration


@dataclass
class Pki:
    """An authority, certificates for this machine and a client, an authority nobody knows."""

    directory: Path

    def __post_init__(self) -> None:
        self.authority = trustme.CA()
        self.ca = self.directory / "ca.pem"
        self.stranger = self.directory / "stranger.pem"
        self.cert = self.directory / "server.pem"
        self.key = self.directory / "server.key"
        self.client_cert = self.directory / "client.pem"
        self.client_key = self.directory / "client.key"
        self.authority.cert_pem.write_to_path(self.ca)
        trustme.CA().cert_pem.write_to_path(self.stranger)
        self.issue()
        client = self.authority.issue_cert("sidecar@example.org")
        client.cert_chain_pems[0].write_to_path(self.client_cert)
        client.private_key_pem.write_to_path(self.client_key)

    def issue(self) -> None:
        """Write a new certificate for the server."""
        made = self.authority.issue_cert("127.0.0.1")
        made.cert_chain_pems[0].write_to_path(self.cert)
        made.private_key_pem.write_to_path(self.key)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    return Pki(tmp_path_factory.mktemp("pki"))


@pytest.fixture(scope="module")
def encrypted(pki: Pki, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    directory = tmp_path_factory.mktemp("encrypted") / "state"
    process = CollectorProcess(directory)
    process.start("--tls-cert", str(pki.cert), "--tls-key", str(pki.key))
    yield process
    assert process.stop() == 0


@pytest.fixture
def sidecars(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(tmp_path)
    yield started
    started.stop()


def connected(url: str, context: ssl.SSLContext) -> ssl.SSLSocket:
    parts = urlsplit(url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=20, context=context
    )
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    return connection.sock


def trusting(pki: Pki) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pki.ca))


def test_a_sidecar_delivers_over_tls_to_a_collector_whose_authority_it_was_told(
    encrypted: CollectorProcess, sidecars: Processes, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert encrypted.url.startswith("https://")
    sidecar = sidecars.sidecar(
        "--url", encrypted.url, "--exit-when-idle",
        PACELINE_TOKEN=TOKEN, PACELINE_CA_FILE=str(pki.ca),
    )  # fmt: skip
    sidecars.writer(total=500)
    assert sidecar.wait(60) == 0
    monkeypatch.setenv("PACELINE_CA_FILE", str(pki.ca))
    jobs = encrypted.client().jobs()
    assert [row["job"] for row in jobs] == ["job-a"]


def test_a_sidecar_that_does_not_trust_the_certificate_keeps_its_frames_and_says_what_to_do(
    encrypted: CollectorProcess, sidecars: Processes, pki: Pki
) -> None:
    sidecar = sidecars.sidecar(
        "--url", encrypted.url, "--exit-when-idle", "--drain-s", "1",
        PACELINE_TOKEN=TOKEN, PACELINE_CA_FILE=str(pki.stranger),
    )  # fmt: skip
    sidecars.writer(total=500)
    wait_until(lambda: "certificate is refused" in sidecars.log.read_text(), 20)
    told = sidecars.log.read_text()
    assert "set PACELINE_CA_FILE to the PEM file of the authority that signed it" in told
    assert "frames are kept in the spool" in told
    assert TOKEN not in told
    sidecar.terminate()
    sidecar.wait(30)


def test_certificates_that_are_renewed_are_read_by_a_sidecar_that_runs(
    encrypted: CollectorProcess,
    sidecars: Processes,
    pki: Pki,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    authorities = tmp_path / "authorities.pem"
    authorities.write_text(pki.stranger.read_text())
    sidecar = sidecars.sidecar(
        "--url", encrypted.url, "--drain-s", "30",
        PACELINE_TOKEN=TOKEN, PACELINE_CA_FILE=str(authorities),
    )  # fmt: skip
    sidecars.writer(total=50)
    wait_until(lambda: "certificate is refused" in sidecars.log.read_text(), 20)
    authorities.write_text(pki.ca.read_text())
    sidecar.terminate()  # so that it does not wait half a minute before it tries again
    assert sidecar.wait(60) == 0
    assert "takes frames again" in sidecars.log.read_text()


def test_commands_say_what_to_do_about_certificates(
    encrypted: CollectorProcess, pki: Pki, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PACELINE_CA_FILE", str(pki.stranger))
    with pytest.raises(TransportError, match="set PACELINE_CA_FILE"):
        encrypted.client().jobs()
    (told,) = doctor(encrypted.url, TOKEN)
    assert told.status == FAIL
    assert "set PACELINE_CA_FILE" in told.remedy
    monkeypatch.setenv("PACELINE_CA_FILE", str(pki.ca))
    assert [check.status for check in doctor(encrypted.url, TOKEN)] == [OK, OK]
    elsewhere = Client(encrypted.url.replace("127.0.0.1", "localhost"), TOKEN)
    with pytest.raises(TransportError, match="a name in the URL that stands in the certificate"):
        elsewhere.jobs()
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    monkeypatch.setenv("PACELINE_CA_FILE", str(broken))
    with pytest.raises(Exception, match=r"broken\.pem cannot be used"):
        encrypted.client().jobs()


def test_what_is_older_than_tls_1_2_is_refused(encrypted: CollectorProcess, pki: Pki) -> None:
    new = connected(encrypted.url, trusting(pki))
    assert new.version() == "TLSv1.3"
    new.close()
    middle = trusting(pki)
    middle.maximum_version = ssl.TLSVersion.TLSv1_2
    sock = connected(encrypted.url, middle)
    assert sock.version() == "TLSv1.2"
    sock.close()
    old = trusting(pki)
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.minimum_version = ssl.TLSVersion.TLSv1_1
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        old.maximum_version = ssl.TLSVersion.TLSv1_1
    old.set_ciphers("DEFAULT:@SECLEVEL=0")
    with pytest.raises(ssl.SSLError):
        connected(encrypted.url, old)


def test_browsers_are_told_to_stay_with_tls(encrypted: CollectorProcess, pki: Pki) -> None:
    parts = urlsplit(encrypted.url)
    connection = http.client.HTTPSConnection(
        parts.hostname or "", parts.port, timeout=20, context=trusting(pki)
    )
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.headers["Strict-Transport-Security"] == "max-age=31536000"
    connection.close()


def test_a_new_certificate_is_taken_on_sighup_and_a_bad_one_is_not(
    encrypted: CollectorProcess, pki: Pki
) -> None:
    def serial() -> str:
        sock = connected(encrypted.url, trusting(pki))
        certificate = sock.getpeercert() or {}
        sock.close()
        return str(certificate["serialNumber"])

    before = serial()
    pki.issue()
    assert serial() == before
    encrypted.process.send_signal(signal.SIGHUP)
    wait_until(lambda: serial() != before, 20)
    after = serial()
    good = pki.key.read_text()
    pki.key.write_text("no key")
    encrypted.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "not reloaded" in encrypted.log.read_text(), 20)
    assert serial() == after
    pki.key.write_text(good)


def test_clients_without_a_certificate_are_refused_where_one_is_asked_for(
    sidecars: Processes, pki: Pki, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = CollectorProcess(tmp_path / "state")
    process.start(
        "--tls-cert", str(pki.cert), "--tls-key", str(pki.key), "--tls-client-ca", str(pki.ca)
    )
    monkeypatch.setenv("PACELINE_CA_FILE", str(pki.ca))
    with pytest.raises(TransportError, match="PACELINE_CERT_FILE"):
        process.client().jobs()
    monkeypatch.setenv("PACELINE_CERT_FILE", str(pki.client_cert))
    monkeypatch.setenv("PACELINE_KEY_FILE", str(pki.client_key))
    assert process.client().jobs() == []
    sidecar = sidecars.sidecar("--url", process.url, "--exit-when-idle", PACELINE_TOKEN=TOKEN)
    sidecars.writer(total=100)
    assert sidecar.wait(60) == 0
    assert [row["job"] for row in process.client().jobs()] == ["job-a"]
    assert process.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tls-key", "KEY"), "give --tls-cert"),
        (("--tls-cert", "KEY", "--tls-key", "KEY"), "give PEM files that belong together"),
        (("--tls-cert", "CERT", "--tls-key", "OTHER"), "give PEM files that belong together"),
        (("--tls-cert", "CERT", "--tls-key", "KEY", "--tls-client-ca", "KEY"), "authorities"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    arguments: tuple[str, ...], said: str, pki: Pki, tmp_path: Path
) -> None:
    files = {"KEY": pki.key, "CERT": pki.cert, "OTHER": pki.client_key}
    process = CollectorProcess(tmp_path / "state")
    given = [str(files.get(argument, argument)) for argument in arguments]
    assert process.spawn(*given).wait(60) == 2
    assert said in process.log.read_text()
