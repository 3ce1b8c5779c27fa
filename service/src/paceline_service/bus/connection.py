"""The connection to NATS and the stream on it; it is kept up, or its fault is told."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import nats
import nats.errors
import structlog
from nats.aio.client import Client
from nats.js import JetStreamContext, api
from nats.js.errors import APIError, NotFoundError

from paceline.wire.codec import HEADER, MAX_PACKED_BYTES
from paceline_service.bus.acks import Acks
from paceline_service.bus.subjects import PARTITIONS, SUBJECTS
from paceline_service.errors import BusUnavailableError

API_TIMEOUT_S = 5.0
RETRY_S = 1.0
RECONNECT_WAIT_S = 0.5
HEADERS_BYTES = 2048
"""What the headers of a message may take: its id holds names of up to 384 characters, escaped."""
LARGEST_MESSAGE_BYTES = MAX_PACKED_BYTES + HEADER.size + HEADERS_BYTES
_PARTITIONS_KEY = "paceline_partitions"
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
        if credentials is not None:
            self._options["user_credentials"] = str(credentials)
        if ca is not None:
            self._options["tls"] = ssl.create_default_context(cafile=str(ca))
        self._client: Client | None = None
        self._js: JetStreamContext | None = None
        self._acks: Acks | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def shown(self) -> str:
        """The servers without the passwords in their URLs."""
        return ",".join(f"{urlsplit(one).hostname}:{urlsplit(one).port}" for one in self._servers)

    @property
    def max_payload_bytes(self) -> int:
        """The largest message that the server takes."""
        return self._client.max_payload if self._client is not None else 0

    @property
    def connected(self) -> bool:
        """Whether messages can go out now."""
        return not self.fault and self._client is not None and self._client.is_connected

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
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            # Whatever it says of a server that is gone: the rest has to be closed as well.
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._client.close(), API_TIMEOUT_S)

    def _begin(self, work: Any) -> None:
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.create_task(work, name="paceline-bus")

    async def _connect(self) -> None:
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
                    # The first connection is tried here, so that its failure can be told.
                    allow_reconnect=True,
                    **self._options,
                )
                break
            except (*BUS_ERRORS, ValueError) as error:
                self.fault = f"cannot connect: {error}"
                _log.error("no connection to the bus; it is tried again", bus=self.shown,
                           error=str(error))  # fmt: skip
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
        while True:
            try:
                fault = await self._ensure_stream()
            except BUS_ERRORS as error:
                fault = f"no stream {self.stream}: {error}"
            if fault != self.fault or not fault:
                self.fault = fault
                _log.log(40 if fault else 20, fault or "the bus is there", bus=self.shown)
            if not fault:
                self.generation += 1
                return
            await asyncio.sleep(RETRY_S)

    async def _ensure_stream(self) -> str:
        """Make the stream, or bring its limits up to date; return what is wrong with it."""
        assert self._js is not None
        wanted = replace(
            self._limits, name=self.stream, subjects=[SUBJECTS],
            retention=api.RetentionPolicy.WORK_QUEUE, storage=api.StorageType.FILE,
            discard=api.DiscardPolicy.NEW, metadata={_PARTITIONS_KEY: str(PARTITIONS)},
        )  # fmt: skip
        try:
            present = (await self._js.stream_info(self.stream)).config
        except NotFoundError:
            try:
                await self._js.add_stream(wanted)
            except APIError as error:
                if error.err_code != _STREAM_NAME_IN_USE:
                    raise
                present = (await self._js.stream_info(self.stream)).config
            else:
                return ""
        there = (present.metadata or {}).get(_PARTITIONS_KEY, "unknown")
        if there != str(PARTITIONS) or present.retention != api.RetentionPolicy.WORK_QUEUE:
            return (
                f"stream {self.stream} has {there} partitions and retention {present.retention}; "
                f"this version needs {PARTITIONS} and workqueue: give another "
                "PACELINE_SERVE_BUS_STREAM, or delete the stream once it is empty"
            )
        limits = ("max_bytes", "max_age", "duplicate_window", "num_replicas")
        if any(getattr(present, name) != getattr(wanted, name) for name in limits):
            await self._js.update_stream(wanted)
        return ""

    async def _on_disconnected(self) -> None:
        if self._acks is not None:
            self._acks.give_up()
        _log.warning("the bus is away", bus=self.shown)

    async def _on_reconnected(self) -> None:
        self.fault = "reconnected, and the stream is being looked for"
        self._begin(self._use())

    async def _on_error(self, error: Exception) -> None:
        if self._js is None:
            # Of several servers the client tries one after the other, and never gives up.
            self.fault = f"cannot connect: {error}"
        _log.warning("bus", error=f"{type(error).__name__}: {error}")


_STREAM_NAME_IN_USE = 10058
