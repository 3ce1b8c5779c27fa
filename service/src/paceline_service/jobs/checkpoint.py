"""When the analysis of an attempt is written down, and how it is taken up again.

Written by the engine's thread between two frames, or by a copy of the process made then, so that
it is of one moment; stored elsewhere (``jobs/persist.py``), in a transaction with the steps up to
it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import structlog

from paceline_service.jobs.checkpoint_codec import CheckpointError, fingerprint, unpack
from paceline_service.jobs.checkpoint_copy import CAN_COPY, CopyLostError, WritingCopy
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Captured

MAX_SHARE = 0.02
"""Share of the thread's time that writing down may take: large attempts are written less often."""
MAX_DOUBLINGS = 6
"""A copy that is lost again and again is tried after so many intervals (a power of two) at most."""
MAX_HELD_FRAMES = 8192
"""With more frames behind gaps it waits: gaps are given up after seconds."""
_log = structlog.get_logger("paceline.checkpoint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A checkpoint as the store has it."""

    frame_id: int
    newest_frame_id: int
    """The newest frame that was committed of the attempt."""
    fingerprint: str
    sha256: str
    body: bytes


@dataclass(slots=True, kw_only=True)
class CheckpointStats:
    """Counts since the start."""

    made: int = 0
    seconds: float = 0.0
    """CPU of the engine's thread, and of the copies of its process that wrote."""
    longest_s: float = 0.0
    """Of the engine's thread."""
    raw_bytes: int = 0
    """Of the newest one, before compression."""
    failures: int = 0
    used: int = 0
    refused: int = 0

    def __add__(self, other: CheckpointStats) -> CheckpointStats:
        """Return the counts of two engines together; of the newest checkpoint, the larger one."""
        return CheckpointStats(
            made=self.made + other.made,
            seconds=self.seconds + other.seconds,
            longest_s=max(self.longest_s, other.longest_s),
            raw_bytes=max(self.raw_bytes, other.raw_bytes),
            failures=self.failures + other.failures,
            used=self.used + other.used,
            refused=self.refused + other.refused,
        )


@dataclass(slots=True)
class _Plan:
    frame_id: int
    due_mono_s: float
    gave_up: bool = False
    lost: int = 0
    """Copies that ended without a result since the last one that had one."""


@dataclass(slots=True)
class _Underway:
    attempt_id: int
    frame_id: int
    made_wall_ns: int
    copy: WritingCopy


@dataclass(slots=True)
class Checkpointer:
    """Decides which attempt is written down now; only the engine's thread uses it."""

    interval_s: float
    """How often a running attempt is written down: what a restart has to replay."""
    in_copy: bool = False
    """Have a copy of the process write, one at a time; else the engine's thread does."""
    stats: CheckpointStats = field(default_factory=CheckpointStats)
    _plans: dict[int, _Plan] = field(default_factory=dict)
    _underway: _Underway | None = None

    def capture(self, live: LiveAttempt, *, stopping: bool = False) -> Captured | None:
        """Return ``live`` written down, if it is due; ``live.tick`` was called just before.

        What a copy writes is returned by the first call after it has.
        """
        underway = self._underway
        if underway is not None and underway.attempt_id == live.attempt.id:
            if not stopping and not live.finished:
                return self._of_copy(live, underway)
            self._abandon()
        if not self._is_due(live, stopping=stopping):
            return None
        if self.in_copy and CAN_COPY and not stopping:
            if self._underway is None:
                self._begin_copy(live)
            return None
        began_cpu_s = time.thread_time()
        try:
            raw = live.dump()
        except CheckpointError as error:
            self._give_up(live, error)
            return None
        finally:
            self._count_thread(live, began_cpu_s)
        self.stats.made += 1
        self.stats.raw_bytes = len(raw)
        return Captured(
            attempt_id=live.attempt.id, frame_id=live.applied_id, body=raw, packed=False,
            made_wall_ns=time.time_ns(),
        )  # fmt: skip

    def _is_due(self, live: LiveAttempt, *, stopping: bool) -> bool:
        now_s = time.monotonic()
        plan = self._plans.get(live.attempt.id)
        if plan is None:
            plan = self._plans[live.attempt.id] = _Plan(0, now_s + self.interval_s)
        if live.failure or live.finished or plan.gave_up or plan.frame_id == live.applied_id:
            return False
        return stopping or (now_s >= plan.due_mono_s and live.held_frames <= MAX_HELD_FRAMES)

    def _begin_copy(self, live: LiveAttempt) -> None:
        began_cpu_s = time.thread_time()
        try:
            copy = WritingCopy(live.dump)
        except OSError as error:  # no memory for it, or too many processes: the next time again
            self.stats.failures += 1
            _log.error("no checkpoint this time", job=live.attempt.job, error=str(error))
        else:
            self._underway = _Underway(live.attempt.id, live.applied_id, time.time_ns(), copy)
        self._count_thread(live, began_cpu_s)

    def _of_copy(self, live: LiveAttempt, underway: _Underway) -> Captured | None:
        """Return what the copy has written, None as long as it writes."""
        try:
            written = underway.copy.poll()
        except CopyLostError as error:
            self._underway = None
            self._put_off(live, error)
            return None
        except CheckpointError as error:
            self._underway = None
            self._give_up(live, error)
            return None
        if written is None:
            return None
        self._underway = None
        self._plans[live.attempt.id].lost = 0
        self.stats.made += 1
        self.stats.raw_bytes = written.raw_bytes
        self.stats.seconds += written.cpu_s
        return Captured(
            attempt_id=underway.attempt_id, frame_id=underway.frame_id, body=written.body,
            packed=True, made_wall_ns=underway.made_wall_ns,
        )  # fmt: skip

    def _count_thread(self, live: LiveAttempt, began_cpu_s: float) -> None:
        """Note what it took of this thread, which says when the next one is due."""
        took_s = time.thread_time() - began_cpu_s
        plan = self._plans[live.attempt.id]
        plan.frame_id = live.applied_id
        plan.due_mono_s = time.monotonic() + max(self.interval_s, took_s / MAX_SHARE)
        self.stats.seconds += took_s
        self.stats.longest_s = max(self.stats.longest_s, took_s)

    def _put_off(self, live: LiveAttempt, error: CheckpointError) -> None:
        """Try again later, and later still if that fails, too: memory may be short."""
        self.stats.failures += 1
        plan = self._plans[live.attempt.id]
        plan.lost += 1
        wait_s = self.interval_s * 2 ** min(plan.lost, MAX_DOUBLINGS)
        plan.frame_id, plan.due_mono_s = 0, time.monotonic() + wait_s
        _log.error("no checkpoint this time", job=live.attempt.job, error=str(error))

    def _give_up(self, live: LiveAttempt, error: CheckpointError) -> None:
        self.stats.failures += 1
        self._plans[live.attempt.id].gave_up = True  # it would fail again: a restart replays all
        _log.error("no checkpoint", job=live.attempt.job, error=str(error))

    def _abandon(self) -> None:
        if self._underway is not None:
            self._underway.copy.kill()
            if (plan := self._plans.get(self._underway.attempt_id)) is not None:
                plan.frame_id = 0  # nothing of it is written
            self._underway = None

    def restore(self, live: LiveAttempt, stored: Stored) -> bool:
        """Take up a fresh ``live`` where ``stored`` left off; return whether that could be."""
        began_s = time.monotonic()
        try:
            if stored.fingerprint != fingerprint():
                raise CheckpointError("another version of the program wrote it")
            if stored.frame_id > stored.newest_frame_id:
                raise CheckpointError(
                    f"it holds frame {stored.frame_id}; the newest that is stored is "
                    f"{stored.newest_frame_id}"
                )
            live.restore(unpack(stored.body, stored.sha256), stored.frame_id)
        except CheckpointError as error:
            self.stats.refused += 1
            _log.warning(
                "a checkpoint is not used; all stored frames are analysed again",
                job=live.attempt.job, attempt=live.attempt.ordinal, reason=str(error),
            )  # fmt: skip
            return False
        self.stats.used += 1
        self._plans[live.attempt.id] = _Plan(live.applied_id, time.monotonic() + self.interval_s)
        _log.info(
            "taken up from a checkpoint", job=live.attempt.job, attempt=live.attempt.ordinal,
            frame=stored.frame_id, frames_after=stored.newest_frame_id - stored.frame_id,
            seconds=round(time.monotonic() - began_s, 3),
        )  # fmt: skip
        return True

    def soon(self, attempt_id: int) -> None:
        """All frames of an attempt were analysed again: write it down at the next occasion."""
        self._plans[attempt_id] = _Plan(0, 0.0)

    def forget(self, attempt_id: int) -> None:
        """The attempt leaves memory."""
        self._plans.pop(attempt_id, None)
        if self._underway is not None and self._underway.attempt_id == attempt_id:
            self._abandon()
