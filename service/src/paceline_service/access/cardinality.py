"""How many things one sender may make the collector keep: launches of jobs, and their processes.

Each costs rows and memory for as long as it lives, whoever invents them. What is over a limit is
refused by frame, as what the token does not cover is: its sender sets it aside and its other jobs
go on. What is counted here is of this process and since its start: a limit on growth, not a quota.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame
from paceline_service.access.tokens import Grant

MIN_PROCESSES = 1024
PROCESSES_PER_RANK = 16
"""A rank that restarts within an attempt is a new process; this many are no launcher's doing."""
_DAY_S = 86_400.0
_Launch = tuple[str, str, int]


@dataclass(slots=True)
class _Known:
    heard_s: float
    most: int
    processes: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Spent:
    since_s: float
    count: int = 0


class Cardinality:
    """Counts what senders begin. On the event loop.

    Args:
        most_per_day: launches that one token may begin in a day.
        most_live: launches that are heard of at once, of all tokens.
        live_window_s: a launch that is silent for so long is none of them.
        clock_s: monotonic.
    """

    def __init__(
        self,
        *,
        most_per_day: int,
        most_live: int,
        live_window_s: float,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most_per_day = most_per_day
        self._most_live = most_live
        self._live_window_s = live_window_s
        self._clock_s = clock_s
        self._launches: OrderedDict[_Launch, _Known] = OrderedDict()
        """Those heard of last at the end."""
        self._spent: dict[str, _Spent] = {}

    def fault(self, frame: Frame | Bundle, grant: Grant) -> str:
        """Return why ``frame`` begins too much, or an empty string."""
        now_s = self._clock_s()
        launch = (frame.job, frame.run_id, frame.attempt)
        known = self._launches.get(launch)
        if known is None:
            fault = self._begin(grant, now_s)
            if fault:
                return fault
            most = max(MIN_PROCESSES, PROCESSES_PER_RANK * frame.world_size)
            known = self._launches[launch] = _Known(now_s, most)
        elif now_s - known.heard_s > 1.0:  # often enough for an order by minutes
            known.heard_s = now_s
            self._launches.move_to_end(launch)
        made = frame.origin.incarnations if isinstance(frame, Bundle) else ()
        if frame.incarnation not in known.processes or not known.processes.issuperset(made):
            new = {frame.incarnation, *made} - known.processes
            if len(known.processes) + len(new) > known.most:
                return (
                    f"attempt {frame.attempt} of job {frame.job!r} has had {known.most} rank "
                    "processes, which is the limit: launch it anew"
                )
            known.processes |= new
        return ""

    def _begin(self, grant: Grant, now_s: float) -> str:
        if len(self._launches) >= self._most_live:
            self._forget_silent(now_s)
        if len(self._launches) >= self._most_live:
            return (
                f"{len(self._launches)} launches are heard of at once, which is the limit: wait, "
                "or raise PACELINE_SERVE_MAX_LIVE_LAUNCHES"
            )
        bearer = grant.bearer
        spent = self._spent.get(bearer)
        if spent is None or now_s - spent.since_s > _DAY_S:
            spent = self._spent[bearer] = _Spent(now_s)
        if spent.count >= self._most_per_day:
            return (
                f"token {grant.name!r} began {spent.count} launches within a day, which is the "
                "limit: wait, or raise PACELINE_SERVE_MAX_LAUNCHES_PER_DAY"
            )
        spent.count += 1
        return ""

    def _forget_silent(self, now_s: float) -> None:
        while self._launches:
            launch, known = next(iter(self._launches.items()))
            if now_s - known.heard_s <= self._live_window_s:
                return
            del self._launches[launch]
