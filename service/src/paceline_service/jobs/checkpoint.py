"""When the analysis of an attempt is written down, and how it is taken up again.

Written by the engine's thread between two frames, so that it is of one moment; compressed and
stored elsewhere (``jobs/persist.py``), in the transaction that stores the steps up to it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import structlog

from paceline_service.jobs.checkpoint_codec import CheckpointError, fingerprint, unpack
from paceline_service.jobs.live import LiveAttempt
from paceline_service.jobs.snapshot import Captured

MAX_SHARE = 0.02
"""Share of the thread's time that writing down may take: large attempts are written less often."""
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
    """CPU of the engine's thread."""
    longest_s: float = 0.0
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


@dataclass(slots=True)
class Checkpointer:
    """Decides which attempt is written down now; only the engine's thread uses it."""

    interval_s: float
    """How often a running attempt is written down: what a restart has to replay."""
    stats: CheckpointStats = field(default_factory=CheckpointStats)
    _plans: dict[int, _Plan] = field(default_factory=dict)

    def capture(self, live: LiveAttempt, *, stopping: bool = False) -> Captured | None:
        """Return ``live`` written down, if it is due; ``live.tick`` was called just before."""
        now_s = time.monotonic()
        plan = self._plans.get(live.attempt.id)
        if plan is None:
            plan = self._plans[live.attempt.id] = _Plan(0, now_s + self.interval_s)
        if live.failure or live.finished or plan.gave_up or plan.frame_id == live.applied_id:
            return None
        if not stopping and (now_s < plan.due_mono_s or live.held_frames > MAX_HELD_FRAMES):
            return None
        began_cpu_s = time.thread_time()
        try:
            raw = live.dump()
        except CheckpointError as error:
            self.stats.failures += 1
            plan.gave_up = True  # it would fail again; a restart replays everything
            _log.error("no checkpoint", job=live.attempt.job, error=str(error))
            return None
        finally:
            took_s = time.thread_time() - began_cpu_s
            plan.due_mono_s = now_s + max(self.interval_s, took_s / MAX_SHARE)
            self.stats.seconds += took_s
            self.stats.longest_s = max(self.stats.longest_s, took_s)
        plan.frame_id = live.applied_id
        self.stats.made += 1
        self.stats.raw_bytes = len(raw)
        return Captured(
            attempt_id=live.attempt.id, frame_id=live.applied_id, raw=raw,
            made_wall_ns=time.time_ns(),
        )  # fmt: skip

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
