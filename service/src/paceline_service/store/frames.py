"""Frames on their way from the commit to the analysis, and back out of the database."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from paceline.wire.bundles import Bundle
from paceline.wire.codec import HEADER
from paceline.wire.frames import Frame

HEAD_AT = HEADER.size
"""Where in a packed bundle lies what is stored once for many of them: behind its header."""


def without_head(packed: bytes, head: bytes) -> bytes:
    """Return a packed bundle that has ``head`` behind its header, as it is stored."""
    return packed[:HEAD_AT] + packed[HEAD_AT + len(head) :]


def with_head(body: bytes, head: bytes) -> bytes:
    """Return as it came what ``without_head`` made ``body`` of."""
    return body[:HEAD_AT] + head + body[HEAD_AT:]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRef:
    """One attempt of a job as the database knows it."""

    id: int
    job: str
    ordinal: int
    run_id: str
    launch_attempt: int
    world_size: int
    first_seen_wall_ns: int


class CommittedFrame(msgspec.Struct, frozen=True, gc=False):
    """A frame or bundle that is durable; ``id`` is its place in the order of commits."""

    id: int
    attempt: AttemptRef
    frame: Frame | Bundle
    received_wall_ns: int
    packed_bytes: int
    first_seq: int = 0
    """Where the frames of its incarnation begin: retention has deleted those below."""
    packed: bytes = b""
    """As it came, where that is still known."""

    @property
    def begins_attempt(self) -> bool:
        """Whether it is of the first transaction of its attempt: nothing was stored before."""
        return self.received_wall_ns == self.attempt.first_seen_wall_ns
