"""The way out by an HTTP proxy: a tunnel that the proxy cannot look into."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paceline.errors import TransportError
from paceline_service.notify.addresses import Target, check_url

MAX_HEAD_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class Proxy:
    """An HTTP proxy, and the hosts that are reached without it."""

    target: Target
    direct: Sequence[str]
    """Patterns of host names."""

    def serves(self, target: Target) -> bool:
        """Whether it is the way to ``target``: what is not encrypted does not leave by it."""
        if not target.secure or target.loopback:
            return False
        return not any(fnmatchcase(target.host, pattern) for pattern in self.direct)


def make_proxy(url: str, direct: Sequence[str]) -> Proxy | None:
    """Return the proxy at ``url``; None where there is none.

    Raises:
        ConfigError: it is no URL of a proxy.
    """
    if not url:
        return None
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    return Proxy(check_url(url, [host.lower()]), direct)


def open_tunnel(raw: socket.socket, target: Target) -> None:
    """Ask the proxy at the other end of ``raw`` for a tunnel to ``target``.

    Raises:
        TransportError: it gives none.
        OSError: it does not answer.
    """
    host = f"[{target.host}]" if ":" in target.host else target.host
    asked = f"CONNECT {host}:{target.port} HTTP/1.1\r\nHost: {host}:{target.port}\r\n\r\n"
    raw.sendall(asked.encode("ascii"))
    head = b""
    while b"\r\n\r\n" not in head:
        # Byte by byte: what follows the head belongs to the tunnel.
        byte = raw.recv(1)
        if not byte or len(head) >= MAX_HEAD_BYTES:
            raise TransportError("the proxy does not answer as one")
        head += byte
    status = head.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or not status[1].startswith(b"2"):
        said = head[:80].split(b"\r\n", 1)[0].decode("ascii", "replace")
        raise TransportError(f"the proxy opens no tunnel: {said}")
