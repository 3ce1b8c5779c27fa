"""What other processes' analyses wrote, for those that only read it: bounded, and soon newer."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

import msgspec
import structlog
from sqlalchemy import func, select

from paceline_service.analysis.job import JobAnalysis
from paceline_service.ending import end_tasks
from paceline_service.export.words import headline
from paceline_service.jobs.board import Board
from paceline_service.jobs.live import MakeAnalysis
from paceline_service.jobs.repository import AttemptRow
from paceline_service.jobs.snapshot import RUNNING, Snapshot, unpack_state
from paceline_service.store.database import Database
from paceline_service.store.frames import AttemptRef
from paceline_service.store.models import JobAttempt

POLL_S = 1.0
KEPT_BYTES = 64 << 20
"""States that are kept unpacked, by the size of their packed ones times ten."""
_UNPACKED_RATIO = 10
_SINCE_NS = 3_600_000_000_000
_log = structlog.get_logger("paceline.bus")


class StoredStates:
    """The newest stored state of each attempt that is asked for.

    Args:
        database: where they are.
        board: woken when any state has become newer.
        owns: whether a job is analysed in this process.
        make_analysis: a fresh analysis: what it says stands for a state that is not written yet.
    """

    def __init__(
        self,
        database: Database,
        board: Board,
        owns: Callable[[str], bool],
        make_analysis: MakeAnalysis,
    ) -> None:
        self.owns = owns
        self._database = database
        self._board = board
        self._make_analysis = make_analysis
        self._kept: OrderedDict[int, tuple[int, int, Snapshot]] = OrderedDict()
        self._kept_bytes = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch for newer states."""
        self._task = asyncio.create_task(self._watch(), name="paceline-states")

    async def stop(self) -> None:
        """End."""
        await end_tasks(self._task)

    async def snapshot(self, row: AttemptRow) -> Snapshot:
        """Return the newest state of an attempt that the store has."""
        identity = row.ref.id
        version = select(JobAttempt.state_version).where(JobAttempt.id == identity)
        whole = select(
            JobAttempt.state, JobAttempt.state_version, JobAttempt.report_frame_id
        ).where(JobAttempt.id == identity)  # fmt: skip
        async with self._database.read() as connection:
            newest = (await connection.execute(version)).scalar_one()
            known = self._kept.get(identity)
            if known is not None and known[0] == newest:
                self._kept.move_to_end(identity)
                return known[2]
            found = (await connection.execute(whole)).one()
        if found.state is None:
            return _nothing_yet(row.ref, self._make_analysis(row.ref.world_size))
        snapshot = await asyncio.to_thread(
            unpack_state, row.ref, found.state, found.report_frame_id
        )
        self._keep(identity, found.state_version, len(found.state) * _UNPACKED_RATIO, snapshot)
        return snapshot

    def _keep(self, identity: int, version: int, size: int, snapshot: Snapshot) -> None:
        before = self._kept.pop(identity, None)
        if before is not None:
            self._kept_bytes -= before[1]
        self._kept[identity] = (version, size, snapshot)
        self._kept_bytes += size
        while self._kept_bytes > KEPT_BYTES and len(self._kept) > 1:
            _, (_, least, _) = self._kept.popitem(last=False)
            self._kept_bytes -= least

    async def _watch(self) -> None:
        before: tuple[int, ...] = ()
        trouble = ""
        while True:
            try:
                query = select(
                    func.count(), func.coalesce(func.sum(JobAttempt.state_version), 0)
                ).where(JobAttempt.last_seen_wall_ns > time.time_ns() - _SINCE_NS)  # fmt: skip
                async with self._database.read() as connection:
                    now = tuple((await connection.execute(query)).one())
                if now != before:
                    before = now
                    self._board.touch()
                trouble = ""
            except Exception as error:  # whatever it is: the next time it may be over
                if trouble != type(error).__name__:
                    trouble = type(error).__name__
                    _log.warning("states are not watched; it is tried again",
                                 error=f"{trouble}: {error}")  # fmt: skip
            await asyncio.sleep(POLL_S)


def _nothing_yet(attempt: AttemptRef, analysis: JobAnalysis) -> Snapshot:
    """Return the state of an attempt whose analysis has just begun, elsewhere."""
    report = analysis.report().to_dict()
    job = {"name": attempt.job, "attempt": attempt.ordinal, "state": RUNNING}
    report["job"] = {**job, "headline": headline(report), **report["job"]}
    return Snapshot(
        attempt=attempt,
        state=RUNNING,
        report=report,
        report_json=msgspec.json.encode(report),
        ranks=[],
        groups=[],
        nodes={},
        last_seen_wall_ns=attempt.first_seen_wall_ns,
        last_step=-1,
        ranks_seen=0,
        frame_id=0,
    )
