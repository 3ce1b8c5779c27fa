"""Who is known: attempts, incarnations and their frame numbers, cached before the database.

What a transaction adds becomes known to others only when it has been committed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from paceline.wire.frames import Frame
from paceline_service.ingest import repository
from paceline_service.store.frames import AttemptRef
from paceline_service.store.sequences import SequenceRanges

AttemptKey = tuple[str, str, int]
IncarnationKey = tuple[int, str]


@dataclass(slots=True, kw_only=True)
class Incarnation:
    """One incarnation and the frames of it that are durable."""

    id: int
    rank: int
    known: SequenceRanges
    low_seq: int = 0
    used_mono_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Staged:
    """What one transaction adds."""

    attempts: dict[AttemptKey, AttemptRef] = field(default_factory=dict)
    incarnations: dict[IncarnationKey, Incarnation] = field(default_factory=dict)
    sequences: dict[int, set[int]] = field(default_factory=dict)
    """By incarnation id: frame numbers."""


class Registry:
    """The cache; only the one writer uses it."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptKey, AttemptRef] = {}
        self._incarnations: dict[IncarnationKey, Incarnation] = {}
        self._by_id: dict[int, Incarnation] = {}

    async def attempt(
        self, connection: AsyncConnection, staged: Staged, frame: Frame, now_wall_ns: int
    ) -> AttemptRef:
        """Return the attempt of ``frame``, found or made."""
        key = (frame.job, frame.run_id, frame.attempt)
        ref = self._attempts.get(key) or staged.attempts.get(key)
        if ref is None:
            ref = await repository.find_attempt(connection, frame)
            if ref is None:
                ref = await repository.create_attempt(connection, frame, now_wall_ns)
            staged.attempts[key] = ref
        return ref

    async def incarnation(
        self,
        connection: AsyncConnection,
        staged: Staged,
        attempt_id: int,
        frame: Frame,
        now_wall_ns: int,
    ) -> Incarnation:
        """Return the incarnation of ``frame``, found or made."""
        key = (attempt_id, frame.incarnation)
        found = self._incarnations.get(key) or staged.incarnations.get(key)
        if found is None:
            row = await repository.find_incarnation(connection, *key)
            if row is None:
                new_id = await repository.create_incarnation(
                    connection, attempt_id, frame, now_wall_ns
                )
                found = Incarnation(id=new_id, rank=frame.rank, known=SequenceRanges())
            else:
                known = await repository.known_sequences(connection, row[0])
                found = Incarnation(
                    id=row[0], rank=row[1], known=SequenceRanges(row[2], known), low_seq=row[2]
                )
            staged.incarnations[key] = found
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
