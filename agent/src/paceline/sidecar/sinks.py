"""Where chunks go: to the collector by way of the spool, or into event logs."""

from __future__ import annotations

from typing import Protocol

from paceline.ring import RingIdentity
from paceline.sidecar.follow import Chunk
from paceline.sidecar.pack import pack
from paceline.sidecar.progress import Progress
from paceline.sidecar.sender import Sender
from paceline.sidecar.spool import Spool


class Sink(Protocol):
    """Stores chunks so that a restarted sidecar neither skips nor repeats a record."""

    def progress(self, identity: RingIdentity) -> Progress:
        """Return how far the ring of ``identity`` was stored earlier."""

    def write(self, chunk: Chunk) -> bool:
        """Store ``chunk``; False: not now, offer it again."""

    def forget(self, incarnation: str) -> None:
        """The ring of ``incarnation`` is gone, after its last chunk was stored."""

    def keep_only(self, incarnations: set[str]) -> None:
        """Forget every incarnation but these: their rings went while no sidecar ran."""

    def settle(self) -> None:
        """Do what is to be done once a round."""

    def hurry(self) -> None:
        """The sidecar wants to end."""

    def drained(self) -> bool:
        """Whether everything that was stored has reached its goal."""

    def close(self) -> None:
        """End."""


class CollectorSink:
    """Frames, spooled, sent."""

    def __init__(self, spool: Spool, sender: Sender) -> None:
        self._spool = spool
        self._sender = sender
        self._told: dict[str, dict[str, str]] = {}
        self._written = False
        self._sender.start()

    def progress(self, identity: RingIdentity) -> Progress:
        """Return how far the ring was spooled earlier."""
        return self._spool.progress.setdefault(identity.incarnation.hex(), Progress())

    def write(self, chunk: Chunk) -> bool:
        """Put ``chunk`` into the spool as one frame."""
        progress = self._spool.progress.setdefault(chunk.incarnation, Progress())
        # Facts seldom change: they travel when they are new, and with the last frame.
        with_info = bool(chunk.ended) or self._told.get(chunk.incarnation) != chunk.info
        frame, refused = pack(chunk, progress.next_seq, with_info=with_info)
        stored = self._spool.append(
            frame,
            incarnation=chunk.incarnation,
            ring_tail=chunk.tail,
            records=len(chunk.rows) - refused,
            ended=bool(chunk.ended),
            also=chunk.also,
        )
        if stored:
            progress.count("unencodable", refused)
            self._told[chunk.incarnation] = chunk.info
            self._written = True
        return stored

    def forget(self, incarnation: str) -> None:
        """Drop what is known of an ended ring."""
        self._told.pop(incarnation, None)
        self._spool.forget(incarnation)

    def keep_only(self, incarnations: set[str]) -> None:
        """Drop what is known of rings that are gone."""
        for incarnation in set(self._spool.progress) - incarnations:
            self._spool.forget(incarnation)

    def settle(self) -> None:
        """Count what the collector refused; send what this round gave, all at once."""
        self._spool.settle()
        self._sender.watch()
        if self._written:
            self._written = False
            self._sender.wake()

    def hurry(self) -> None:
        """End pauses of the sender."""
        self._sender.hurry()

    def drained(self) -> bool:
        """Whether the collector acknowledged everything."""
        return self._spool.unacknowledged_bytes == 0

    def close(self) -> None:
        """Stop the sender, close the spool."""
        self._sender.stop(timeout_s=1.0)
        self._spool.settle()
        self._spool.close()
