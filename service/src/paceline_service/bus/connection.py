"""The connection to NATS and the stream on it; it is kept up, or its fault is told."""

from __future__ import annotations

import asyncio
import contextlib
import math
import re
import ssl
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api

from paceline.wire.codec import HEADER, MAX_PACKED_BYTES
from paceline_service.bus.acks import Acks
from paceline_service.bus.credentials import REMEDY, Credentials, CredentialsError
from paceline_service.bus.stream import ensure_stream
from paceline_service.ending import end_tasks
from paceline_service.errors import BusUnavailableError

API_TIMEOUT_S = 5.0
RETRY_S = 1.0
RECONNECT_WAIT_S = 0.5
DEFAULT_PORT = 4222
DENIED_S = 60.0
"""For so long /readyz tells that something was refused for want of a permission."""
HEADERS_BYTES = 2048
"""What the headers of a message may take: its id holds names of up to 384 characters, escaped."""
LARGEST_MESSAGE_BYTES = MAX_PACKED_BYTES + HEADER.size + HEADERS_BYTES
BUS_ERRORS = (nats.errors.Error, OSError, asyncio.TimeoutError)
"""What a request to NATS may raise."""
_log = structlog.get_logger("paceline.bus")


class Bus:
    """One connection of this process.

    Args:
        servers: URLs.
        stream: name of the stream.
        limits: how the stream is to be made.
        credentials: a file of NATS credentials.
        ca: certificates that the servers' are checked with, where the URLs say tls.
        name: of this process, shown by NATS.
    """

    def __init__(
        self,
        servers: list[str],
        *,
        stream: str,
        limits: api.StreamConfig,
        credentials: Path | None = None,
        ca: Path | None = None,
        name: str = "",
    ) -> None:
        self.stream = stream
        self.fault = "not connected yet"
        """Why the bus cannot be used at present; empty: it can."""
        self.generation = 0
        """Counts connections: what was delivered over an earlier one may be lost on its way."""
        self._servers = servers
        self._limits = limits
        self._options: dict[str, Any] = {"name": name}
        self._credentials: Credentials | None = None
        if credentials is not None:
            self._credentials = Credentials(credentials)
            self._options["signature_cb"] = self._credentials.sign
            self._options["user_jwt_cb"] = self._credentials.jwt
        if ca is not None:
            self._options["tls"] = ssl.create_default_context(cafile=str(ca))
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._acks: Acks | None = None
        self._task: asyncio.Task[None] | None = None
        self._closing = False
        self._denied = ("", -math.inf)

    @property
    def shown(self) -> str:
        """The servers without the passwords in their URLs."""
        parts = [urlsplit(one) for one in self._servers]
        return ",".join(f"{one.hostname}:{one.port or DEFAULT_PORT}" for one in parts)

    @property
    def max_payload_bytes(self) -> int:
        """The largest message that the server takes."""
        return self._client.max_payload if self._client is not None else 0

    @property
    def connected(self) -> bool:
        """Whether messages can go out now."""
        return not self.fault and self._client is not None and self._client.is_connected

    @property
    def trouble(self) -> str:
        """Why not all can be done that is asked of the bus; empty: it can."""
        if self._client is not None and self._client.is_connected and self._refused_lately:
            return self._refused_lately
        return self.fault or ("" if self.connected else "the connection is lost")

    @property
    def _refused_lately(self) -> str:
        words, at_mono_s = self._denied
        return words if time.monotonic() - at_mono_s < DENIED_S else ""

    @property
    def js(self) -> JetStreamContext:
        """JetStream.

        Raises:
            BusUnavailableError: there is no connection now, or no stream that can be used.
        """
        if self._js is None or not self.connected:
            why = self.fault or "the connection is lost"
            raise BusUnavailableError(f"the bus {self.shown} does not take frames: {why}")
        return self._js

    @property
    def acks(self) -> Acks:
        """What publishes.

        Raises:
            BusUnavailableError: as ``js``.
        """
        assert self.js is not None
        assert self._acks is not None, "made before the connection counts as one"
        return self._acks

    def start(self) -> None:
        """Begin to connect; NATS may be away at this moment and for as long as it likes."""
        self._begin(self._connect())

    async def close(self) -> None:
        """End the connection."""
        self._closing = True
        await end_tasks(self._task)
        if self._client is not None:
            # Whatever it says of a server that is gone: the rest has to be closed as well.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._client.close(), API_TIMEOUT_S)

    def look_for_stream(self) -> None:
        """Make sure of the stream anew: what was there a moment ago does not answer."""
        if self.connected:
            self.fault = f"stream {self.stream} is gone, and is made again"
            _log.error(self.fault, bus=self.shown)
            self._begin(self._use())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(work, name="paceline-bus")

    async def _connect(self, wait_s: float = 0.0) -> None:
        await asyncio.sleep(wait_s)
        while True:
            try:
                self._client = await nats.connect(
                    servers=self._servers,
                    max_reconnect_attempts=-1,
                    reconnect_time_wait=RECONNECT_WAIT_S,
                    connect_timeout=API_TIMEOUT_S,
                    ping_interval=10,
                    max_outstanding_pings=2,
                    error_cb=self._on_error,
                    disconnected_cb=self._on_disconnected,
                    reconnected_cb=self._on_reconnected,
                    closed_cb=self._on_closed,
                    # The first connection is tried here, so that its failure can be told.
                    allow_reconnect=True,
                    **self._options,
                )
                break
            except (*BUS_ERRORS, ValueError) as error:
                self._tell(error)
                await asyncio.sleep(RETRY_S)
        self._js = self._client.jetstream(timeout=API_TIMEOUT_S)
        self._acks = Acks(self._client)
        await self._acks.start()
        if self._client.max_payload < LARGEST_MESSAGE_BYTES:
            _log.warning(
                "the largest frames are refused: raise max_payload of NATS",
                max_payload_bytes=self._client.max_payload, wanted_bytes=LARGEST_MESSAGE_BYTES,
            )  # fmt: skip
        await self._use()

    async def _use(self) -> None:
        """Make sure of the stream, again and again until it is there."""
        assert self._js is not None, "it is connected"
        while True:
            try:
                fault = await ensure_stream(self._js, self.stream, self._limits)
            except BUS_ERRORS as error:
                fault = f"no stream {self.stream}: {self._refused_lately or error}"
            if self._client is None or not self._client.is_connected:
                pass  # why it is not is told already
            elif fault != self.fault or not fault:
                self.fault = fault
                _log.log(40 if fault else 20, fault or "the bus is there", bus=self.shown)
            if not self.fault:
                self.generation += 1
                return
            await asyncio.sleep(RETRY_S)

    async def _on_disconnected(self) -> None:
        if self._acks is not None:
            self._acks.give_up()
        if not self._closing:
            self.fault = "the connection is lost; it is made again"
            _log.warning("the bus is away", bus=self.shown)

    async def _on_reconnected(self) -> None:
        self.fault = "reconnected, and the stream is being looked for"
        self._begin(self._use())

    async def _on_closed(self) -> None:
        """The client gives up when a server refuses what it took before: it is made anew."""
        if self._closing or self._client is None:
            return
        if self._client.last_error is not None:
            self._tell(self._client.last_error)
        self._js = self._acks = None
        self._begin(self._connect(RETRY_S))

    async def _on_error(self, error: Exception) -> None:
        text = str(error)
        if _DENIED in text.lower():
            words = f"NATS refuses it: {text.removeprefix('nats: ')}; {_PERMISSIONS}"
            if words != self._denied[0]:
                _log.error(words, bus=self.shown)
            self._denied = (words, time.monotonic())
            if self._acks is not None:
                self._acks.give_up(words)
        elif self._client is None or not self._client.is_connected:
            # Of several servers the client tries one after the other, and never gives up.
            self._tell(error)
        else:
            _log.warning("bus", error=f"{type(error).__name__}: {error}")

    def _tell(self, error: Exception) -> None:
        """Keep why there is no connection, and log it if it is news."""
        fault = f"cannot connect: {self._advice(error)}"
        if fault != self.fault:
            _log.error("no connection to the bus; it is tried again", bus=self.shown, why=fault)
        self.fault = fault

    def _advice(self, error: Exception) -> str:
        text = str(error) or type(error).__name__
        if isinstance(error, CredentialsError) or not _REFUSED.search(text):
            return text
        if self._credentials is not None:
            why = self._credentials.expired or (
                "the server does not know their account or user, or they were revoked"
            )
            return (
                f"NATS refuses the credentials {self._credentials.path} ({text}): {why}. Write "
                f"valid ones into that file, it is read at every try; {REMEDY}"
            )
        return (
            f"NATS refuses user and password of --bus ({text}); where it asks for credentials, "
            "give PACELINE_SERVE_BUS_CREDENTIALS"
        )


_REFUSED = re.compile("authori[sz]ation|authentication", re.IGNORECASE)
"""What a server calls its refusal of a user, at first or later."""
_DENIED = "permissions violation"
_PERMISSIONS = "docs/scale-out.md lists what its user has to be allowed"
