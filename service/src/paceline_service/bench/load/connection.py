"""One non-blocking connection that POSTs bodies, one after the other, as a sidecar does."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from paceline.errors import TransportError
from paceline.wire.codec import CONTENT_TYPE

_HEAD_END = b"\r\n\r\n"
_READ_BYTES = 65536


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the collector said."""

    status: int
    body: bytes
    retry_after_s: float


class Connection:
    """Sends a body when told to, and says when the answer is there.

    Args:
        address: host and port.
        token: the bearer token.
    """

    def __init__(self, address: tuple[str, int], token: str) -> None:
        self._address = address
        self._head = (
            f"POST /v1/frames HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: "
        ).encode()
        self._socket: socket.socket | None = None
        self._out = memoryview(b"")
        self._in = bytearray()

    @property
    def is_open(self) -> bool:
        """Whether there is a socket."""
        return self._socket is not None

    @property
    def wants_to_write(self) -> bool:
        """Whether some of the request has not been taken yet."""
        return len(self._out) > 0

    def fileno(self) -> int:
        """Return the descriptor, for a selector."""
        return self._socket.fileno() if self._socket is not None else -1

    def open(self) -> None:
        """Begin to connect."""
        self._socket = socket.socket(
            socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET, socket.SOCK_STREAM
        )
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.connect_ex(self._address)

    def close(self) -> None:
        """Let go of the socket."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._out = memoryview(b"")
        self._in.clear()

    def request(self, body: bytes) -> None:
        """Begin a POST; the answer to the one before is there."""
        self._out = memoryview(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))

    def write(self) -> None:
        """Send what the socket takes.

        Raises:
            OSError: the connection is gone.
        """
        assert self._socket is not None
        try:
            self._out = self._out[self._socket.send(self._out) :]
        except BlockingIOError:
            return

    def read(self) -> Answer | None:
        """Return the answer once it is whole.

        Raises:
            OSError: the connection is gone.
            TransportError: this is no answer in HTTP/1.1.
        """
        assert self._socket is not None
        try:
            data = self._socket.recv(_READ_BYTES)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError("the collector closed the connection")
        self._in += data
        end = self._in.find(_HEAD_END)
        if end < 0:
            return None
        head = bytes(self._in[:end])
        length = _header(head, b"content-length")
        first = end + len(_HEAD_END)
        try:
            status, size = int(head[9:12]), int(length)
        except ValueError:
            raise TransportError(f"the collector answered {head[:200]!r}") from None
        if len(self._in) < first + size:
            return None
        body = bytes(self._in[first : first + size])
        del self._in[: first + size]
        retry = _header(head, b"retry-after")
        return Answer(
            status=status, body=body, retry_after_s=float(retry) if retry.isdigit() else 0.0
        )


def _header(head: bytes, name: bytes) -> bytes:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return b""
