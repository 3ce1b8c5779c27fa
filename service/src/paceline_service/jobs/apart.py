"""Analysis in a process of its own: what is said between it and the collector.

One interpreter runs one thread at a time. Where taking the frames of a job and judging its steps
are half a core each, the two in one process wait for each other more than they work.
Messages are pickles over a socket pair: both ends are the same program of the same user, and
frames cross it as the bytes that they came as.
"""

from __future__ import annotations

import contextlib
import pickle
import queue
import socket
import struct
import threading
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from paceline.wire.bundle_codec import decode_any
from paceline_service.jobs.checkpoint import CheckpointStats
from paceline_service.jobs.engine_stats import EngineStats
from paceline_service.jobs.snapshot import Json, Update
from paceline_service.store.frames import AttemptRef, CommittedFrame

_LENGTH = struct.Struct("<Q")


class Channel:
    """One end. Messages are sent by a thread of their own, so that nobody waits for the other end.

    Args:
        end: of a socket pair.
    """

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._outbox: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._reader = end.makefile("rb", buffering=1 << 20)
        self._writer = threading.Thread(target=self._write, name="paceline-channel", daemon=True)
        self._writer.start()

    def send(self, message: object) -> None:
        """Send a message; None ends it when everything before is sent."""
        self._outbox.put(message)

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            EOFError: the other end is gone.
        """
        try:
            head = self._reader.read(_LENGTH.size)
            if len(head) == _LENGTH.size:
                (size,) = _LENGTH.unpack(head)
                body = self._reader.read(size)
                if len(body) == size:
                    return pickle.loads(body)
        except OSError as error:
            raise EOFError from error
        raise EOFError

    def drain(self) -> None:
        """Wait until everything is sent; nothing is sent afterwards."""
        self._outbox.put(None)
        self._writer.join()

    def close(self) -> None:
        """Let go of the socket; who reads from it gets an EOFError."""
        self._outbox.put(None)
        with contextlib.suppress(OSError):  # the other end went first
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _write(self) -> None:
        while (message := self._outbox.get()) is not None:
            body = pickle.dumps(message, 5)
            try:
                self._socket.sendall(_LENGTH.pack(len(body)))
                self._socket.sendall(body)
            except OSError:
                return  # the other end is gone, which its reader notices


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """Committed frames on their way to be analysed."""

    attempts: list[AttemptRef]
    """Of each; few objects, many times."""
    frames: list[tuple[int, int, int, bytes]]
    """Id, received at, first number of its incarnation, and the frame as it came."""

    @classmethod
    def of(cls, frames: list[CommittedFrame]) -> Frames:
        """Return frames for sending."""
        return cls(
            attempts=[one.attempt for one in frames],
            frames=[(one.id, one.received_wall_ns, one.first_seq, one.packed) for one in frames],
        )

    def committed(self) -> list[CommittedFrame]:
        """Return what was sent; its frames were decoded once before, so that they can be."""
        return [
            CommittedFrame(
                id=number, attempt=attempt, frame=decode_any(packed),
                received_wall_ns=received_ns, packed_bytes=len(packed), first_seq=first_seq,
            )
            for attempt, (number, received_ns, first_seq, packed) in zip(
                self.attempts, self.frames, strict=True
            )
        ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A wish to have an attempt in memory, and its fulfilment."""

    number: int
    attempt: AttemptRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence for the report of an attempt."""

    attempt_id: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """Analyse what was sent, publish it and end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forget:
    """An attempt has left memory."""

    attempt_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """How the analysis is doing."""

    stats: EngineStats
    checkpoints: CheckpointStats
    backlog_bytes: int
    taken_bytes: int
    """How much was handed in since the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An update without what the other end has, or can make."""

    update: Update
    begun: int
    """Tells two analyses of one attempt apart: the later begins its recent steps anew."""
    recent_limit: int
    same_ranks: bool
    """Whether the rows of the ranks are those of the update before."""


def thin(update: Update, begun: int, known_ranks: list[Json] | None) -> Published:
    """Return ``update`` for sending, where ``known_ranks`` are the rows that were sent last."""
    snapshot = update.snapshot
    same = snapshot.ranks is known_ranks
    recent = snapshot.recent
    light = replace(
        snapshot, report={}, recent=None,
        ranks=[] if same else snapshot.ranks, nodes={} if same else snapshot.nodes,
    )  # fmt: skip
    return Published(
        update=replace(update, snapshot=light), begun=begun, same_ranks=same,
        recent_limit=recent.limit if recent is not None else 0,
    )  # fmt: skip


def report_of(published: Published) -> Json:
    """Return the report of an update; this takes a while, and any thread may do it."""
    report: Json = msgspec.json.decode(published.update.snapshot.report_json)
    return report
