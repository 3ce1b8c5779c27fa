"""Who is known: attempts, incarnations and their frame numbers, cached before the database.

What a transaction adds becomes known to others only when it has been committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame
from paceline_service.ingest import repository
from paceline_service.ingest.heads import Beginnings, Head
from paceline_service.store.frames import AttemptRef
from paceline_service.store.sequences import SequenceRanges

AttemptKey = tuple[str, str, int]
IncarnationKey = tuple[int, str]
AnyFrame = Frame | Bundle


@dataclass(slots=True, kw_only=True)
class Incarnation:
    """One incarnation and the frames of it that are durable."""

    id: int
    rank: int
    """-1: a stream of bundles."""
    known: SequenceRanges
    low_seq: int = 0
    used_mono_s: float = 0.0
    head: Head | None = None
    beginnings: Beginnings = field(default_factory=Beginnings)


@dataclass(slots=True, kw_only=True)
class Staged:
    """What one transaction adds."""

    attempts: dict[AttemptKey, AttemptRef] = field(default_factory=dict)
    incarnations: dict[IncarnationKey, Incarnation] = field(default_factory=dict)
    sequences: dict[int, set[int]] = field(default_factory=dict)
    """By incarnation id: frame numbers."""
    heads: dict[int, Head] = field(default_factory=dict)
    """By incarnation id."""


class Registry:
    """The cache; only the one writer uses it."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptKey, AttemptRef] = {}
        self._incarnations: dict[IncarnationKey, Incarnation] = {}
        self._by_id: dict[int, Incarnation] = {}
        self._newest_head: Head | None = None
        self._trust = object()
        """With connections to a database that has the heads which are known."""

    async def prepare(
        self,
        connection: AsyncConnection,
        staged: Staged,
        frames: Iterable[AnyFrame],
        now_wall_ns: int,
    ) -> None:
        """Find or make the attempts and incarnations of ``frames``, those of many in one query."""
        unknown: dict[IncarnationKey, AnyFrame] = {}
        for frame in frames:
            attempt = self.attempt(staged, frame)
            if attempt is None:
                attempt = await repository.find_attempt(connection, frame)
                if attempt is None:
                    attempt = await repository.create_attempt(connection, frame, now_wall_ns)
                staged.attempts[frame.job, frame.run_id, frame.attempt] = attempt
            key = (attempt.id, frame.incarnation)
            if (
                key not in self._incarnations
                and key not in staged.incarnations
                and frame.rank < attempt.world_size
            ):
                unknown.setdefault(key, frame)
        if not unknown:
            return
        found = await repository.find_incarnations(connection, list(unknown))
        known = await repository.known_sequences(connection, [row[0] for row in found.values()])
        new = {key: frame for key, frame in unknown.items() if key not in found}
        for key, made_id in (
            await repository.create_incarnations(connection, new, now_wall_ns)
        ).items():
            staged.incarnations[key] = Incarnation(
                id=made_id, rank=new[key].rank, known=SequenceRanges()
            )
        for key, (known_id, rank, low_seq) in found.items():
            ranges = SequenceRanges(low_seq)
            for first, end in known.get(known_id, ()):
                ranges.add_range(first, end)
            staged.incarnations[key] = Incarnation(
                id=known_id, rank=rank, known=ranges, low_seq=low_seq
            )

    def attempt(self, staged: Staged, frame: AnyFrame) -> AttemptRef | None:
        """Return the attempt of ``frame``; None before ``prepare``."""
        key = (frame.job, frame.run_id, frame.attempt)
        return self._attempts.get(key) or staged.attempts.get(key)

    def incarnation(self, staged: Staged, attempt_id: int, frame: AnyFrame) -> Incarnation:
        """Return the incarnation of ``frame``; ``prepare`` was called."""
        key = (attempt_id, frame.incarnation)
        found = self._incarnations.get(key) or staged.incarnations[key]
        found.used_mono_s = time.monotonic()
        return found

    @staticmethod
    def is_new(staged: Staged, incarnation: Incarnation, frame_seq: int) -> bool:
        """Whether that frame was neither stored nor staged; if so it is staged now."""
        if frame_seq in incarnation.known:
            return False
        sequences = staged.sequences.setdefault(incarnation.id, set())
        if frame_seq in sequences:
            return False
        sequences.add(frame_seq)
        return True

    @staticmethod
    def head(staged: Staged, incarnation: Incarnation, packed: bytes, frame_id: int) -> Head | None:
        """Return what can be left out of a bundle; one of this ``frame_id`` is not stored yet."""
        known = staged.heads.get(incarnation.id) or incarnation.head
        if known is not None and known.begins(packed):
            return known
        found = incarnation.beginnings.find(packed, frame_id)
        if found is not None:
            staged.heads[incarnation.id] = found
        return found

    async def check_heads(self, connection: AsyncConnection) -> None:
        """Forget them where the newest is not stored: the database is an older one than it was.

        No transaction has to fail for it: whoever meets the broken connections first, a reader
        perhaps, has the pool make new ones for all. So each connection is asked once.
        """
        if connection.info.get("heads") is self._trust:
            return
        newest = self._newest_head
        if newest and not await repository.has_head(connection, newest.frame_id, newest.content):
            self.forget_heads()
        connection.info["heads"] = self._trust

    def forget_heads(self) -> None:
        """A transaction failed: perhaps the database has not what was stored of them before.

        Nor count those that were not stored, and a bundle that comes again is not compared with
        itself.
        """
        self._newest_head, self._trust = None, object()
        for incarnation in self._by_id.values():
            incarnation.head, incarnation.beginnings = None, Beginnings()

    def committed(self, staged: Staged) -> None:
        """Make known what a transaction added."""
        self._attempts.update(staged.attempts)
        self._incarnations.update(staged.incarnations)
        for incarnation in staged.incarnations.values():
            self._by_id[incarnation.id] = incarnation
        for incarnation_id, sequences in staged.sequences.items():
            written = self._by_id.get(incarnation_id)
            if written is None:
                continue  # it was forgotten while this was under way
            for seq in sorted(sequences):
                written.known.add(seq)
            written.head = staged.heads.get(incarnation_id, written.head)
        if staged.heads:
            self._newest_head = max(staged.heads.values(), key=lambda head: head.frame_id)

    def forget_before(self, low_seqs: dict[int, int]) -> None:
        """Note that retention has deleted the frames below ``low_seqs`` (by incarnation id)."""
        for incarnation_id, low in low_seqs.items():
            incarnation = self._by_id.get(incarnation_id)
            if incarnation is not None:
                incarnation.low_seq = max(incarnation.low_seq, low)

    def forget_jobs(self, covers: Callable[[str], bool]) -> None:
        """Drop from the cache the jobs that another process may have written."""
        gone = [key for key in self._attempts if covers(key[0])]
        ids = {self._attempts.pop(key).id for key in gone}
        for of_attempt, incarnation in list(self._incarnations.items()):
            if of_attempt[0] in ids:
                del self._incarnations[of_attempt]
                self._by_id.pop(incarnation.id, None)

    def forget_unused(self, idle_s: float) -> None:
        """Drop from the cache what nothing was sent of for ``idle_s``."""
        limit_s = time.monotonic() - idle_s
        for key, incarnation in list(self._incarnations.items()):
            if incarnation.used_mono_s < limit_s:
                del self._incarnations[key]
                del self._by_id[incarnation.id]
        live = {attempt_id for attempt_id, _ in self._incarnations}
        for name, ref in list(self._attempts.items()):
            if ref.id not in live:
                del self._attempts[name]
