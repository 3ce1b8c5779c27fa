"""One request to a receiver: checked addresses, verified TLS, bounded in time and size.

It blocks and runs in a thread. Redirects are not followed, proxies are those of the settings.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError, TransportError
from paceline_service.notify.addresses import Target, check_address, check_url
from paceline_service.notify.proxy import Proxy, open_tunnel

TIMEOUT_S = 10.0
"""For everything: name, connection, request, answer."""
MAX_ANSWER_BYTES = 1 << 20
_AGENT = "paceline-collector"


class NotSentError(TransportError):
    """The request did not reach the receiver: to send it again repeats nothing."""


class UnansweredError(TransportError):
    """The request may have reached the receiver, and no answer came."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a receiver said."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


class Outgoing:
    """Sends requests; used by several threads at once.

    Args:
        plain_hosts: hosts that may be sent to without TLS, beside this machine.
        ca_file: authorities to trust, beside the system's.
        only_ca: trust those alone.
        proxy: the way to most receivers, where there is no other.
        timeout_s: for a whole request.
    """

    def __init__(
        self,
        plain_hosts: Collection[str] = (),
        ca_file: Path | None = None,
        *,
        only_ca: bool = False,
        proxy: Proxy | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._plain_hosts = frozenset(plain_hosts)
        self._timeout_s = timeout_s
        self._proxy = proxy
        self._tls = ssl.create_default_context()
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
        if ca_file is not None:
            if only_ca:
                self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                self._tls.minimum_version = ssl.TLSVersion.TLSv1_2
            try:
                self._tls.load_verify_locations(ca_file)
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"the authorities {ca_file} cannot be used: {error}; give a PEM file of "
                    "certificates"
                ) from error

    def check(self, url: str) -> Target:
        """Return where ``url`` leads.

        Raises:
            ConfigError: it breaks a rule (``addresses``).
        """
        return check_url(url, self._plain_hosts)

    def send(self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]) -> Answer:
        """Send one request and return its answer, whatever its status.

        Raises:
            ConfigError: the URL, or the address of its host, breaks a rule.
            NotSentError: it did not get there.
            UnansweredError: it may have.
        """
        target = self.check(url)
        deadline_s = time.monotonic() + self._timeout_s
        connection = self._connect(target, deadline_s)
        # Each single wait is bounded by the timeout of the socket; this bounds all of them.
        sent = threading.Event()
        watchdog = threading.Timer(deadline_s - time.monotonic(), _shut, [connection.sock, sent])
        watchdog.daemon = True
        watchdog.start()
        try:
            given = {"User-Agent": _AGENT, "Accept": "application/json", **headers}
            connection.request(method, target.path, body, given)
            sent.set()
            answer = connection.getresponse()
            content = answer.read(MAX_ANSWER_BYTES)
            names = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(status=answer.status, headers=names, body=content)
        except (OSError, http.client.HTTPException, ValueError) as error:
            why = "no answer in time" if time.monotonic() >= deadline_s else _why(error)
            raise UnansweredError(f"{target.origin}: {why}") from error
        finally:
            watchdog.cancel()
            connection.close()

    def _connect(self, target: Target, deadline_s: float) -> http.client.HTTPConnection:
        proxy = self._proxy if self._proxy is not None and self._proxy.serves(target) else None
        near = target if proxy is None else proxy.target
        try:
            found = socket.getaddrinfo(near.host, near.port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise NotSentError(f"{near.origin}: its name has no address: {error}") from error
        for _, _, _, _, address in found:
            check_address(str(address[0]), near)
        failure: Exception | None = None
        for family, kind, protocol, _, address in found[:4]:
            try:
                raw = self._dial(family, kind, protocol, address, deadline_s)
                return self._open(raw, target, proxy is not None, deadline_s)
            except (OSError, TransportError) as error:  # ssl.SSLError is one of the first
                failure = error
        by = f" by {near.origin}" if proxy is not None else ""
        raise NotSentError(f"{target.origin}{by}: {_why(failure)}") from failure

    @staticmethod
    def _dial(
        family: int, kind: int, protocol: int, address: tuple[object, ...], deadline_s: float
    ) -> socket.socket:
        """Connect to one address: the one that was checked, whatever the name is worth later."""
        raw = socket.socket(family, kind, protocol)
        try:
            raw.settimeout(_left(deadline_s))
            raw.connect(address)
        except BaseException:
            raw.close()
            raise
        return raw

    def _open(
        self, raw: socket.socket, target: Target, by_proxy: bool, deadline_s: float
    ) -> http.client.HTTPConnection:
        watchdog = threading.Timer(_left(deadline_s), _shut, [raw])
        watchdog.daemon = True
        watchdog.start()
        try:
            raw.settimeout(_left(deadline_s))
            if by_proxy:
                open_tunnel(raw, target)
            made = http.client.HTTPConnection(target.host, target.port, timeout=_left(deadline_s))
            if target.secure:
                raw = self._tls.wrap_socket(raw, server_hostname=target.host)
                made.default_port = 443
            raw.settimeout(_left(deadline_s))
            made.sock = raw
        except BaseException:
            raw.close()
            raise
        finally:
            watchdog.cancel()
        return made


def _left(deadline_s: float) -> float:
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("no connection in time")
    return left_s


def _shut(sock: socket.socket, sent: threading.Event) -> None:
    # A peer that is told of the end resets the connection when it writes on, and with that what
    # was read so far is lost. So it is told only where the request did not get out. TLS is left
    # alone: its own shutdown takes it away from the thread that reads.
    with contextlib.suppress(OSError):
        how = socket.SHUT_RD if sent.is_set() else socket.SHUT_RDWR
        socket.socket.shutdown(sock, how)


def _why(error: Exception | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is refused: {error.verify_message}; name its authority in "
            "PACELINE_SERVE_NOTIFY_CA_FILE"
        )
    if isinstance(error, TransportError):
        return str(error)
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return f"{type(error).__name__}: {error}"[:300]
