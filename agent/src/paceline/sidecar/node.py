"""The rings of one node, from their appearance to their removal."""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path

from paceline.clock import mono_ns, wall_ns
from paceline.errors import RingError
from paceline.ring import RingReader
from paceline.sidecar.control import Control
from paceline.sidecar.discovery import Discovery
from paceline.sidecar.follow import Chunk, Follower
from paceline.sidecar.pairs import PLUGIN, Pairs
from paceline.sidecar.sinks import Sink
from paceline.sidecar.stacks import Stacks
from paceline.sidecar.telemetry.sampler import Telemetry

_log = logging.getLogger("paceline.sidecar")
_START_SLACK_NS = 1_000_000_000
"""A ring this much older than the sidecar may be of the job that it was started for."""


class Node:
    """Follows every ring in ``directory`` and stores what they give in ``sink``."""

    def __init__(
        self,
        directory: Path,
        sink: Sink,
        node: str,
        telemetry: Telemetry | None = None,
        control: Control | None = None,
    ) -> None:
        self._sink = sink
        self._control = control
        self._telemetry = telemetry
        self._node = node
        self._stacks = Stacks()
        self._discovery = Discovery(directory)
        self._followers: list[Follower] = []
        self._pairs = Pairs()
        self._first_round = True
        self._began_wall_ns = wall_ns()
        self.job_seen = False
        """Whether a ring was found that is no left-over of an earlier run."""

    @property
    def rings_followed(self) -> int:
        """How many rings are followed now."""
        return len(self._followers) + self._pairs.waiting

    def round(self, now_s: float) -> None:
        """Look for rings, read them all once, store what is due."""
        for reader in self._discovery.look():
            if reader.identity.producer == PLUGIN:
                self._see(reader)
                self._pairs.add(reader, now_s)
            else:
                self._begin(reader)
        for orphan in self._pairs.attach(self._followers):
            self._discard(orphan)
        if self._first_round:
            self._first_round = False
            followed = {f.identity.incarnation.hex() for f in self._followers}
            self._sink.keep_only(followed | self._pairs.incarnations())
        for reader in self._pairs.alone(now_s):
            self._begin(reader)
        if self._control is not None:
            self._control.apply(self._followers)
        if self._telemetry is not None:
            self._telemetry.collect(self._followers, mono_ns())
        self._stacks.look(self._followers, now_s)
        self._serve(now_s)
        self._sink.settle()

    def flush(self, now_s: float) -> None:
        """Store what was read and is not due yet, because the sidecar ends."""
        for follower in self._followers:
            with contextlib.suppress(RingError):
                follower.poll(now_s)
        written = self._sink.write_all([follower.chunk() for follower in self._followers])
        for follower, stored in zip(self._followers, written, strict=True):
            if stored is True:
                follower.taken(now_s)
            follower.close()
        self._followers = []
        self._pairs.close()

    def _see(self, reader: RingReader) -> None:
        fresh = reader.identity.created_wall_ns > self._began_wall_ns - _START_SLACK_NS
        self.job_seen = self.job_seen or fresh or reader.writer_alive()

    def _begin(self, reader: RingReader) -> None:
        identity = reader.identity
        self._see(reader)
        progress = self._sink.progress(identity)
        if progress.ended:  # stored to its end before the last sidecar could remove it
            self._pairs.hooks_over(identity)
            self._discard(reader)
            return
        reader.seek(progress.ring_tail)
        _log.info(
            "following rank %d of %s (attempt %d): %s",
            identity.rank,
            identity.job,
            identity.attempt,
            reader.path.name,
        )
        node = self._node or identity.node or _host()
        alone = identity.producer == PLUGIN
        self._followers.append(Follower(reader, progress, node, alone=alone))

    def _discard(self, reader: RingReader) -> None:
        reader.close()
        self._remove(reader.path, reader.identity.incarnation.hex())

    def _serve(self, now_s: float) -> None:
        """Read every ring, and store together what is due, until nothing more is."""
        waiting = list(self._followers)
        while waiting:
            due = [(one, *read) for one in waiting if (read := self._read(one, now_s)) is not None]
            written = self._sink.write_all([chunk for _, _, chunk in due])
            waiting = []
            for (follower, more, _), stored in zip(due, written, strict=True):
                if isinstance(stored, Exception):
                    self._give_up(follower, stored)
                elif stored:
                    follower.taken(now_s)
                    if more:
                        waiting.append(follower)
                    elif follower.ended:
                        self._finish(follower)

    def _read(self, follower: Follower, now_s: float) -> tuple[bool, Chunk] | None:
        """Return whether there may be more, and what is due; None where nothing is."""
        try:
            more = follower.poll(now_s)
            return (more, follower.chunk()) if follower.due(now_s) else None
        except Exception as error:
            self._give_up(follower, error)
            return None

    def _give_up(self, follower: Follower, error: Exception) -> None:
        """Follow a ring no longer; whatever it is, the other ranks of the node go on."""
        if isinstance(error, RingError):
            _log.warning("giving up a ring: %s", error)
        else:
            why = "giving up the ring %s: an error of the sidecar's own"
            _log.error(why, follower.path, exc_info=error)
        follower.close()
        self._followers = [one for one in self._followers if one is not follower]

    def _finish(self, follower: Follower) -> None:
        """Remove the rings of a process that has ended: they are stored to their ends."""
        _log.info("rank %d %s", follower.identity.rank, follower.ended)
        follower.close()
        self._followers = [one for one in self._followers if one is not follower]
        self._pairs.hooks_over(follower.identity)
        # The hooks' ring last: whoever finds it knows that the other one was stored with it.
        for path, incarnation in follower.second_rings():
            self._remove(path, incarnation)
        self._remove(follower.path, follower.identity.incarnation.hex())

    def _remove(self, path: Path, incarnation: str) -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:  # then its progress stays, so that it is not read again
            _log.warning("cannot remove the ring %s: %s", path, error)
        else:
            self._sink.forget(incarnation)


def _host() -> str:
    return socket.gethostname()
