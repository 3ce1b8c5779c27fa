"""Looks every few seconds how the collector is doing, and asks jobs for fewer steps or for more."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import structlog
from sqlalchemy.exc import SQLAlchemyError

from paceline_service.control.relief import Candidate, Load, Relief
from paceline_service.control.service import ControlService
from paceline_service.ending import end_tasks

CHECK_S = 5.0
_log = structlog.get_logger("paceline.relief")


class ReliefWatch:
    """The task that does it.

    Args:
        control: asks jobs.
        load: says how full the fullest queue is, how many requests were refused since the
            start, and how far the analysis is behind, in seconds.
        max_stride: see ``Relief``.
    """

    def __init__(
        self,
        control: ControlService,
        load: Callable[[], tuple[float, int, float]],
        *,
        max_stride: int,
    ) -> None:
        self.changes: Counter[str] = Counter()
        """By direction."""
        self._control = control
        self._load = load
        self._max_stride = max_stride
        self._relief = Relief(max_stride)
        self._refused = 0
        self._records: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; where it is switched off, strides that an earlier process asked for are ended."""
        self._task = asyncio.create_task(self._run(), name="paceline-relief")

    async def stop(self) -> None:
        """End."""
        await end_tasks(self._task)

    async def check(self, now_s: float) -> None:
        """Look once."""
        jobs = self._candidates()
        if self._max_stride == 1:
            for one in jobs:
                if one.asked > 1:
                    await self._control.relieve(one.job, 1)
            return
        ratio, refused, lag_s = self._load()
        load = Load(waiting_ratio=ratio, refused=refused - self._refused, lag_s=lag_s)
        self._refused = refused
        order = self._relief.decide(now_s, load, jobs)
        if order is None:
            return
        if await self._control.relieve(order.job, order.stride):
            self.changes[order.direction] += 1
            _log.warning(
                "asked a job for fewer steps" if order.direction == "up" else "took it back",
                job=order.job, stride=order.stride, waiting_ratio=round(ratio, 3),
                refused=load.refused, lag_s=round(lag_s, 1),
            )  # fmt: skip

    def _candidates(self) -> list[Candidate]:
        records = self._control.records()
        found = [
            Candidate(
                job=job,
                records_per_s=(count - self._records.get(job, count)) / CHECK_S,
                asked=self._control.relief_stride(job),
                by_hand=self._control.stride_by_hand(job),
            )
            for job, count in records.items()
            if self._control.can_relieve(job)
        ]
        self._records = records
        return found

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check(time.monotonic())
            except (SQLAlchemyError, OSError) as error:
                _log.error("a stride cannot be stored; it is tried again", error=str(error))
            except Exception as error:
                _log.error("looking for relief failed", exc_info=error)
