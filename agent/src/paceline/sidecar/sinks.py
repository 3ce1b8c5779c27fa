"""Where chunks go: to the collector by way of the spool, or into event logs."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from paceline.ring import RingIdentity
from paceline.sidecar.bundle import Part, pack_bundle
from paceline.sidecar.follow import Chunk
from paceline.sidecar.progress import Progress
from paceline.sidecar.segment import Mark
from paceline.sidecar.sender import Sender
from paceline.sidecar.spool import Spool
from paceline.wire.bundles import MAX_MEMBERS
from paceline.wire.frames import MAX_RECORDS_PER_FRAME


class Sink(Protocol):
    """Stores chunks so that a restarted sidecar neither skips nor repeats a record."""

    def progress(self, identity: RingIdentity) -> Progress:
        """Return how far the ring of ``identity`` was stored earlier."""

    def write_all(self, chunks: Sequence[Chunk]) -> list[bool | Exception]:
        """Store ``chunks``, one of a ring; tell of each whether it is stored, or its error.

        False: not now, offer it again.
        """

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


_Launch = tuple[str, str, int, int, str, bool]
"""What the rings of a bundle have in common."""


@dataclass(slots=True)
class _Stream:
    """The bundles of one launch; a sidecar that is started again begins another stream."""

    name: str = field(default_factory=lambda: secrets.token_hex(16))
    next_seq: int = 0


class CollectorSink:
    """Bundles, spooled, sent."""

    def __init__(self, spool: Spool, sender: Sender) -> None:
        self._spool = spool
        self._sender = sender
        self._told: dict[str, dict[str, str]] = {}
        self._streams: dict[_Launch, _Stream] = {}
        self._written = False
        self._sender.start()

    def progress(self, identity: RingIdentity) -> Progress:
        """Return how far the ring was spooled earlier."""
        return self._spool.progress.setdefault(identity.incarnation.hex(), Progress())

    def write_all(self, chunks: Sequence[Chunk]) -> list[bool | Exception]:
        """Put ``chunks`` into the spool, those of a launch together."""
        outcomes: dict[str, bool | Exception] = {}
        launches: dict[_Launch, list[Part]] = {}
        for chunk in chunks:
            launches.setdefault(_launch(chunk), []).append(self._part(chunk))
        for launch, parts in launches.items():
            for few in _within_limits(parts):
                self._write(launch, few, outcomes)
        return [outcomes[chunk.incarnation] for chunk in chunks]

    def _part(self, chunk: Chunk) -> Part:
        progress = self._spool.progress.setdefault(chunk.incarnation, Progress())
        # Facts seldom change: they travel when they are new, and with the last frame.
        with_info = bool(chunk.ended) or self._told.get(chunk.incarnation) != chunk.info
        return Part(chunk=chunk, frame_seq=progress.next_seq, with_info=with_info)

    def _write(
        self, launch: _Launch, parts: list[Part], outcomes: dict[str, bool | Exception]
    ) -> None:
        stream = self._streams.setdefault(launch, _Stream())
        try:
            packed = pack_bundle(parts, stream.name, stream.next_seq)
        except Exception as error:
            if len(parts) == 1:
                outcomes[parts[0].chunk.incarnation] = error
                return
            half = len(parts) // 2
            self._write(launch, parts[:half], outcomes)
            self._write(launch, parts[half:], outcomes)
            return
        marks = [
            Mark(
                incarnation=part.chunk.incarnation,
                frame_seq=part.frame_seq,
                ring_tail=part.chunk.tail,
                records=len(part.chunk.rows) - refused,
                ended=bool(part.chunk.ended),
                also=part.chunk.also,
            )
            for part, refused in zip(parts, packed.refused, strict=True)
        ]
        stored = self._spool.append_bundle(
            packed.data, stream=stream.name, seq=stream.next_seq, marks=marks
        )
        for part, refused in zip(parts, packed.refused, strict=True):
            chunk = part.chunk
            outcomes[chunk.incarnation] = stored
            if stored:
                self._spool.progress[chunk.incarnation].count("unencodable", refused)
                self._told[chunk.incarnation] = chunk.info
        if stored:
            stream.next_seq += 1
            self._written = True

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


def _launch(chunk: Chunk) -> _Launch:
    identity = chunk.identity
    # A ring that cannot be right is refused, and takes no other with it.
    fits = 0 <= identity.rank < identity.world_size
    return (
        identity.job, identity.run_id, identity.attempt, identity.world_size, chunk.node, fits
    )  # fmt: skip


def _within_limits(parts: Sequence[Part]) -> Iterator[list[Part]]:
    """Cut ``parts`` so that a bundle holds those of each piece."""
    piece: list[Part] = []
    records = 0
    for part in parts:
        count = len(part.chunk.rows)
        if piece and (records + count > MAX_RECORDS_PER_FRAME or len(piece) == MAX_MEMBERS):
            yield piece
            piece, records = [], 0
        piece.append(part)
        records += count
    if piece:
        yield piece
