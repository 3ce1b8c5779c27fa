"""One partition in this process: messages are taken, committed, and only then acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog
from nats.aio.msg import Msg
from nats.js import JetStreamContext, api
from nats.js.errors import NotFoundError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from paceline_service.bus.connection import BUS_ERRORS, Bus
from paceline_service.bus.stats import BusStats
from paceline_service.bus.stream import STREAM_NOT_FOUND
from paceline_service.bus.subjects import filter_of, partition_of
from paceline_service.errors import (
    BusUnavailableError,
    LeaseLostError,
    OverloadedError,
    StoreUnavailableError,
)
from paceline_service.ingest.commit import GroupCommit
from paceline_service.ingest.decoding import IncomingFrame, decode_message

BATCH_MESSAGES = 256
BATCH_BYTES = 4 << 20
"""About how much is taken at once; by the size of the messages before."""
FETCH_S = 5.0
ACK_WAIT_S = 60.0
PROGRESS_S = 20.0
"""How often the stream is told that a batch is still worked on."""
RETRY_S = 0.5
ROOM_S = 0.1
TRIES = 5
"""A frame that the database itself refuses so often, alone, is given up."""
_REFUSED_CLASSES = frozenset({"22", "23", "54"})
"""SQLSTATE classes of bad data, broken constraints and exceeded limits: not of an outage."""
_log = structlog.get_logger("paceline.bus")


@dataclass(slots=True, kw_only=True)
class _Item:
    message: Msg
    frame: IncomingFrame
    refused: int = 0


class PartitionWorker:
    """Works on one partition under one lease.

    Args:
        bus: where messages come from.
        partition: which.
        epoch: of the lease; the consumer bears it, so that an earlier owner has none.
        commits: writes the frames.
        has_room: whether the analysis can take more.
        is_owned: asks the database whether the lease still holds.
        max_world_size: most ranks of one job.
        stats: what is counted.
    """

    def __init__(
        self,
        bus: Bus,
        partition: int,
        epoch: int,
        commits: GroupCommit,
        has_room: Callable[[], bool],
        is_owned: Callable[[], Awaitable[bool]],
        *,
        max_world_size: int,
        stats: BusStats,
    ) -> None:
        self._bus = bus
        self._partition = partition
        self._epoch = epoch
        self._commits = commits
        self._has_room = has_room
        self._is_owned = is_owned
        self._max_world_size = max_world_size
        self._stats = stats
        self._batch = BATCH_MESSAGES // 4
        self._consumer = ""
        self.bound = False
        """Whether messages are being taken."""

    async def run(self) -> None:
        """Work until it is cancelled or the lease is lost."""
        while True:
            try:
                await self._work()
            except LeaseLostError:
                return
            except (*BUS_ERRORS, BusUnavailableError) as error:
                if isinstance(error, NotFoundError) and error.err_code == STREAM_NOT_FOUND:
                    self._bus.look_for_stream()
                _log.warning("a partition waits for the bus", partition=self._partition,
                             error=f"{type(error).__name__}: {error}")  # fmt: skip
            except Exception as error:
                _log.error("a partition begins again", partition=self._partition, exc_info=error)
            self.bound = False
            await asyncio.sleep(RETRY_S)

    async def lag(self) -> int:
        """Return how many messages of the partition are not acknowledged.

        Raises:
            NotFoundError: the consumer is gone.
        """
        info = await self._bus.js.consumer_info(self._bus.stream, self._consumer)
        return (info.num_pending or 0) + (info.num_ack_pending or 0)

    async def _work(self) -> None:
        generation = self._bus.generation
        subscription = await self._bind(generation)
        self.bound = True
        try:
            # After a reconnection what was on its way is lost: a new consumer brings it in order.
            while self._bus.generation == generation:
                if not self._has_room():
                    await asyncio.sleep(ROOM_S)
                    continue
                with contextlib.suppress(asyncio.TimeoutError):  # nothing came
                    await self._handle(await subscription.fetch(self._batch, timeout=FETCH_S))
        finally:
            self.bound = False
            with contextlib.suppress(*BUS_ERRORS):
                await subscription.unsubscribe()

    async def _bind(self, generation: int) -> JetStreamContext.PullSubscription:
        """Make a consumer of this lease in the place of those before it.

        What was delivered to those and not acknowledged comes again at once, and in order: also
        what was delivered to one of this lease, before an error.
        """
        js, stream = self._bus.js, self._bus.stream
        prefix = f"frames-{self._partition}-"
        self._consumer = f"{prefix}{self._epoch}-{generation}"
        for info in await js.consumers_info(stream):
            if not info.name.startswith(prefix):
                continue
            if int(info.name[len(prefix) :].split("-")[0]) > self._epoch:
                if not await self._is_owned():
                    raise LeaseLostError("a later lease has a consumer already")
                # The database counts anew, or from a backup: nobody has that lease any more.
                _log.warning("a consumer of a lease that the database does not know is deleted",
                             consumer=info.name)  # fmt: skip
            with contextlib.suppress(NotFoundError):
                await js.delete_consumer(stream, info.name)
        config = api.ConsumerConfig(
            durable_name=self._consumer, filter_subject=filter_of(self._partition),
            ack_policy=api.AckPolicy.EXPLICIT, ack_wait=ACK_WAIT_S, max_deliver=-1,
            max_ack_pending=4 * BATCH_MESSAGES,
        )  # fmt: skip
        await js.add_consumer(stream, config)
        return await js.pull_subscribe_bind(durable=self._consumer, stream=stream)

    async def _handle(self, messages: Sequence[Msg]) -> None:
        if not messages:
            return
        size = sum(len(message.data) for message in messages)
        self._batch = max(1, min(BATCH_MESSAGES, BATCH_BYTES * len(messages) // (size + 1)))
        decoded = await asyncio.to_thread(self._decode, messages)
        items = []
        for message, frame in decoded:
            if message.metadata.num_delivered > 1:
                self._stats.redelivered += 1
            if isinstance(frame, str):
                await self._terminate(message, frame)
            else:
                items.append(_Item(message=message, frame=frame))
        progress = asyncio.create_task(_report_progress(items))
        try:
            await self._commit(items)
        finally:
            progress.cancel()

    def _decode(self, messages: Sequence[Msg]) -> list[tuple[Msg, IncomingFrame | str]]:
        found: list[tuple[Msg, IncomingFrame | str]] = []
        for message in messages:
            frame = decode_message(message.data, max_world_size=self._max_world_size)
            if (
                isinstance(frame, IncomingFrame)
                and partition_of(frame.frame.job) != self._partition
            ):
                frame = "wrong_partition"
            found.append((message, frame))
        return found

    async def _commit(self, items: list[_Item]) -> None:
        """Return when all are durable and acknowledged, or given up."""
        failures = 0
        while items:
            try:
                await self._commits.submit([item.frame for item in items])
            except LeaseLostError:
                raise
            except OverloadedError:
                await asyncio.sleep(ROOM_S)
            except StoreUnavailableError as error:
                failures += 1
                if _refused(error) and failures > 1:
                    await self._one_by_one(items)
                    return
                await asyncio.sleep(RETRY_S * min(failures, 4))
            else:
                for item in items:
                    await _acknowledge(item.message.ack)
                return

    async def _one_by_one(self, items: list[_Item]) -> None:
        """Commit each by itself, so that one that cannot be stored does not stop the others."""
        for item in items:
            while True:
                try:
                    await self._commits.submit([item.frame])
                except LeaseLostError:
                    raise
                except OverloadedError:
                    await asyncio.sleep(ROOM_S)
                except StoreUnavailableError as error:
                    item.refused += _refused(error)
                    if item.refused >= TRIES:
                        await self._terminate(item.message, "refused")
                        break
                    # Others may have shared its transaction: not all at the same moment again.
                    await asyncio.sleep(RETRY_S * (1 + self._partition % 7 / 7))
                else:
                    await _acknowledge(item.message.ack)
                    break

    async def _terminate(self, message: Msg, reason: str) -> None:
        """Take a message out of the stream that can never be stored, and count it."""
        self._stats.terminated[reason] += 1
        self._commits.count_rejects([f"bus_{reason}"])
        self._commits.stats.last_error = ""  # it was the message's fault, and /readyz asks for it
        _log.error("a message is given up", subject=message.subject, reason=reason,
                   sequence=message.metadata.sequence.stream)  # fmt: skip
        await _acknowledge(message.term)


def _refused(error: StoreUnavailableError) -> bool:
    """Whether the database refused what was to be written, and not to work at all."""
    cause = error.__cause__
    if isinstance(cause, DBAPIError):
        state = str(getattr(cause.orig, "sqlstate", None) or "")
        return state[:2] in _REFUSED_CLASSES
    return cause is not None and not isinstance(cause, (SQLAlchemyError, OSError))


async def _acknowledge(how: Callable[[], Awaitable[None]]) -> None:
    # One that is lost makes the message come again, and count as a duplicate.
    with contextlib.suppress(*BUS_ERRORS):
        await how()


async def _report_progress(items: Sequence[_Item]) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        for item in items:
            if not item.message.is_acked:
                await _acknowledge(item.message.in_progress)
