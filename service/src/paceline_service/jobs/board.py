"""The newest snapshot of every attempt in memory, and who wants to hear of new ones."""

from __future__ import annotations

import asyncio

from paceline_service.jobs.snapshot import Snapshot, Update


class Board:
    """Lives on the event loop."""

    def __init__(self) -> None:
        self._snapshots: dict[int, Snapshot] = {}
        self._latest: dict[str, int] = {}
        self._changed = asyncio.Event()
        self.version = 0
        """Counts what was posted; see ``wait``."""
        self.closing = False

    def post(self, update: Update) -> None:
        """Take an update, and wake everyone who waits."""
        attempt_id = update.snapshot.attempt.id
        self._snapshots[attempt_id] = update.snapshot
        self._note_latest(update.snapshot)
        self._wake()

    def close(self) -> None:
        """The collector is stopping: nobody shall wait any longer."""
        self.closing = True
        self._wake()

    def touch(self) -> None:
        """Another process has written something newer: wake everyone who waits."""
        self._wake()

    def get(self, attempt_id: int) -> Snapshot | None:
        """Return the newest snapshot of an attempt, if it is in memory."""
        return self._snapshots.get(attempt_id)

    def all(self) -> list[Snapshot]:
        """Return every snapshot in memory."""
        return list(self._snapshots.values())

    def latest(self, job: str) -> Snapshot | None:
        """Return the snapshot of the latest attempt of ``job`` in memory."""
        return self._snapshots.get(self._latest.get(job, 0))

    def forget(self, attempt_id: int) -> None:
        """The engine has let go of an attempt: the store answers for it from now on."""
        snapshot = self._snapshots.pop(attempt_id, None)
        if snapshot is not None and self._latest.get(snapshot.attempt.job) == attempt_id:
            del self._latest[snapshot.attempt.job]

    async def wait(self, version: int, timeout_s: float) -> bool:
        """Return True once anything was posted after ``version``, False after ``timeout_s``."""
        if self.version != version or self.closing:
            return True
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            return False
        return True

    def _note_latest(self, snapshot: Snapshot) -> None:
        known = self.latest(snapshot.attempt.job)
        if known is None or known.attempt.ordinal <= snapshot.attempt.ordinal:
            self._latest[snapshot.attempt.job] = snapshot.attempt.id

    def _wake(self) -> None:
        self.version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
