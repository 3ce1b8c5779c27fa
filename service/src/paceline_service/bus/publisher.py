"""The gateway's end of the bus: frames are published, and acknowledged by the stream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

from paceline.wire.codec import Rejected
from paceline_service.bus.acks import NO_STREAM, Refusal
from paceline_service.bus.connection import BUS_ERRORS, HEADERS_BYTES, Bus
from paceline_service.bus.stats import BusStats
from paceline_service.bus.subjects import message_id, subject_of
from paceline_service.errors import BusUnavailableError, OverloadedError
from paceline_service.ingest.commit import CommitStats, Outcome
from paceline_service.ingest.decoding import IncomingFrame
from paceline_service.store.drops import DropKey

ACK_S = 10.0
"""How long the stream may take; the sender has a time-out of its own."""
_STREAM_FULL = frozenset({10023, 10047, 10077, 10122})
"""JetStream's error codes for: no resources, no storage, most bytes of the stream, of all."""


class Publisher:
    """Takes the frames of requests in the place of ``GroupCommit``.

    Args:
        bus: where they go.
        queue_bytes: most bytes that may wait for the stream.
        stats: what is counted of the bus.
    """

    def __init__(self, bus: Bus, *, queue_bytes: int, stats: BusStats) -> None:
        self._bus = bus
        self._queue_bytes = queue_bytes
        self._bus_stats = stats
        self.stats = CommitStats()
        self.unstored_rejects: Counter[DropKey] = Counter()
        """Rejections that go into the table of drops when the database is asked next."""

    @property
    def waiting_bytes(self) -> int:
        """Bytes that the stream has not acknowledged."""
        return self._bus_stats.waiting_bytes

    def count_rejects(self, reasons: Sequence[str]) -> None:
        """Count frames that were not published."""
        self.stats.rejects.update(reasons)
        for reason in reasons:
            self.unstored_rejects[0, "ingest", reason] += 1

    async def submit(self, frames: Sequence[IncomingFrame]) -> Outcome:
        """Return when the stream has all of ``frames``.

        Raises:
            OverloadedError: too much is waiting, here or in the stream.
            BusUnavailableError: the bus does not answer.
        """
        size = sum(len(item.packed) for item in frames)
        waiting = self._bus_stats.waiting_bytes
        if waiting and waiting + size > self._queue_bytes:
            self.stats.refused["publish_queue"] += 1
            raise OverloadedError(
                f"{waiting} bytes wait for the bus; the limit is {self._queue_bytes}: keep the "
                "frames and send them again"
            )
        began_s = time.perf_counter()
        self._bus_stats.waiting_bytes += size
        try:
            outcome = await self._publish(frames)
        except OverloadedError:
            self.stats.refused["stream_full"] += 1
            raise
        except BusUnavailableError:
            self._bus_stats.failures["unavailable"] += 1
            raise
        finally:
            self._bus_stats.waiting_bytes -= size
        self._bus_stats.publish_seconds += time.perf_counter() - began_s
        self._bus_stats.publishes += 1
        self.stats.raw_bytes += size
        self.stats.frames += outcome.accepted
        self.stats.records += sum(item.frame.count for item in frames)
        self.stats.duplicates += outcome.duplicate
        return outcome

    async def _publish(self, frames: Sequence[IncomingFrame]) -> Outcome:
        acks = self._bus.acks
        outcome = Outcome()
        limit_bytes = self._bus.max_payload_bytes - HEADERS_BYTES
        messages = []
        for item in frames:
            if len(item.packed) > limit_bytes:
                self._reject(outcome, item, limit_bytes)
            else:
                frame = item.frame
                messages.append((subject_of(frame.job), item.packed, message_id(frame)))
        try:
            answers = await acks.publish(messages, ACK_S)
        except BUS_ERRORS as error:
            why = str(error) or type(error).__name__
            raise BusUnavailableError(f"the bus took not all of the frames: {why}") from error
        for answer in answers:
            if answer is NO_STREAM:
                self._bus.look_for_stream()
            if answer.error is not None:
                raise _refused(answer.error)
            outcome.duplicate += answer.duplicate
            outcome.accepted += not answer.duplicate
        self._bus_stats.published += outcome.accepted
        return outcome

    def _reject(self, outcome: Outcome, item: IncomingFrame, limit_bytes: int) -> None:
        reason = (
            f"a frame of {len(item.packed)} bytes; the bus takes {limit_bytes}: raise max_payload "
            "of NATS, or put fewer records into it"
        )
        outcome.rejected.append(Rejected(offset=item.offset, reason=reason))
        self.count_rejects(["bus_limit"])


def _refused(refusal: Refusal) -> OverloadedError | BusUnavailableError:
    if refusal.err_code in _STREAM_FULL:
        return OverloadedError(
            f"the stream is full ({refusal.description}): are analyzers running? Keep the frames "
            "and send them again"
        )
    return BusUnavailableError(f"the stream took not all of the frames: {refusal.description}")
