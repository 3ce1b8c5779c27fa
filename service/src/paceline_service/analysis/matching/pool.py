"""Records of all ranks, handed out step by step once a step is complete."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator

import numpy as np

from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import COLUMNS, BoolArray, Int64Array, Records
from paceline_service.analysis.sets import distinct

DEVICE_PATIENCE_STEPS = 32
"""A rank whose newest step on the device is further back has stopped timing them."""
MAX_STEP = 1 << 40
"""No job takes so many: a step beyond it is damage."""


COPIED_SHARE = 8
"""A smaller part than this of a table is copied out of it, and does not keep all of it alive."""
SORTED_ROWS = 1 << 14
"""Rows that are sorted in together: few enough for a core's cache."""
_RADIX = 1 << 16
"""Sorting keys below it takes linear time."""


class StepPool:
    """Holds records until their step is complete on every rank that is expected.

    A step is complete when each expected rank has written the STEP record of a step
    ``grace_steps`` later. Not expected are ranks that have ended; those for which the others have
    been going on for ``patience_s``, by their own records, while nothing new came of it for as
    long, where it is told when records come (``heard``); and nobody while more than
    ``patience_rows`` rows are held. One that was given up is expected again once it has caught up.

    Args:
        world_size: R.
        grace_steps: how many steps more a rank must have ended.
        patience_s: for how long a rank is waited for, in event time of the others.
        patience_rows: how many rows may be held.
        catch_up_s: for how long a rank may be behind by more, as long as its records come.
    """

    def __init__(
        self,
        world_size: int,
        *,
        grace_steps: int,
        patience_s: float,
        patience_rows: int,
        catch_up_s: float = 0.0,
    ) -> None:
        self._arrived: list[Table] = []
        self._held: dict[int, list[Table]] = {}
        self._order: list[int] = []
        """A heap of the steps that are held."""
        self._held_rows = 0
        self._duration_ns: dict[int, int] = {}
        self._next_step = 0
        self._last_step = np.full(world_size, -1, dtype=np.int64)
        self._last_on_device = np.full(world_size, -1, dtype=np.int64)
        self._ended = np.zeros(world_size, dtype=np.bool_)
        self._given_up = np.zeros(world_size, dtype=np.bool_)
        """Ranks that were waited for in vain and are not back where the others are."""
        self._to_come = np.zeros(world_size, dtype=np.bool_)
        """Ranks of which more records are known to be on their way."""
        self._heard_ns = np.zeros(world_size, dtype=np.int64)
        """When each rank was heard of last; 0: that is not told."""
        self._moved_ns = np.zeros(world_size, dtype=np.int64)
        """When each rank was last heard to have ended a step that was new."""
        self._late_since_ns = np.zeros(world_size, dtype=np.int64)
        """Since when each rank has been behind by more than the patience; 0: it is not."""
        self._catch_up_ns = int(catch_up_s * 1e9)
        self._grace_steps = grace_steps
        self._patience_ns = int(patience_s * 1e9)
        self._patience_rows = patience_rows
        self._dropped: Counter[str] = Counter()
        """``late``: of a step that was handed out before. ``out_of_range``: of one below 0 or
        beyond ``MAX_STEP``. ``no_step``: let go because no rank ended the step they are of."""

    def add(self, records: Records) -> None:
        """Take records of one rank."""
        self.add_table(as_table(records))

    def add_table(self, table: Table) -> None:
        """Take records of many ranks; those of one rank are in the order they were written."""
        if len(table):
            self._arrived.append(table)

    def end(self, rank: int) -> None:
        """Expect nothing more from ``rank``."""
        self._ended[rank] = True

    def resume(self, rank: int) -> None:
        """Expect records from ``rank`` again."""
        self._ended[rank] = False

    def heard(self, rank: int, now_ns: int) -> None:
        """Say when records of ``rank`` came, on one clock for all ranks."""
        self._heard_ns[rank] = now_ns

    def to_come(self, rank: int, *, more: bool) -> None:
        """Say that ``more`` records of ``rank`` are known to come, however long it takes."""
        self._to_come[rank] = more

    def remaining(self) -> Table:
        """Return the rows of all steps that were not handed out yet, by rank."""
        self._sort_in()
        return _table([part for parts in self._held.values() for part in parts])

    def dropped(self) -> Counter[str]:
        """Return how many records were let go, by reason."""
        self._sort_in()
        return self._dropped

    def complete(self, *, final: bool = False) -> Iterator[tuple[int, Table]]:
        """Yield each newly complete step with its rows by rank, in order."""
        self._sort_in()
        while self._order:
            step = self._order[0]
            if not self._is_complete(step, final=final):
                if self._held_rows <= self._patience_rows:
                    return
                if step not in self._duration_ns:  # no rank has ended it
                    self._dropped["no_step"] += sum(map(len, self._pop(step)))
                    continue
            self._next_step = step + 1
            yield step, _table(self._pop(step))

    def _is_complete(self, step: int, *, final: bool) -> bool:
        fastest = int(self._last_step.max(initial=-1))
        if final or self._ended.all():
            return step <= fastest  # what comes after the last step that ended is none
        needed = step + self._grace_steps
        if fastest < needed:
            return False
        behind = ~self._ended & ~self._given_up & (self._last_step < needed)
        if not behind.any():
            return True
        soon_ns = sum(self._duration_ns.get(at, 0) for at in range(step, needed + 1))
        ahead_ns = sum(self._duration_ns.values()) - soon_ns
        if ahead_ns <= self._patience_ns:
            self._late_since_ns[:] = 0
            return False
        if self._still_comes(behind):
            return False
        self._given_up |= behind
        return True

    def _still_comes(self, behind: BoolArray) -> bool:
        """Whether one of those ``behind``, which began, is about to catch up."""
        begun = behind & (self._last_step >= 0)
        if (begun & self._to_come).any():
            return True
        now_ns = self._heard_ns.max()
        self._late_since_ns[begun & (self._late_since_ns == 0)] = now_ns
        comes = begun & (self._moved_ns > 0) & (now_ns - self._moved_ns <= self._patience_ns)
        return bool((comes & (now_ns - self._late_since_ns <= self._catch_up_ns)).any())

    def _pop(self, step: int) -> list[Table]:
        heapq.heappop(self._order)
        self._duration_ns.pop(step, None)
        parts = self._held.pop(step)
        self._held_rows -= sum(map(len, parts))
        return parts

    def _sort_in(self) -> None:
        """Cut what has arrived into the rows of one step each."""
        parts, self._arrived = self._arrived, []
        together: list[Table] = []
        rows = 0
        for part in parts:
            together.append(part)
            rows += len(part)
            if rows >= SORTED_ROWS:
                self._cut(stack(together) if len(together) > 1 else part)
                together, rows = [], 0
        if together:
            self._cut(stack(together) if len(together) > 1 else together[0])

    def _cut(self, table: Table) -> None:
        """Hold the rows of a table step by step."""
        if (table.step[1:] < table.step[:-1]).any():
            table = table.take(_order(table.step))
        step = table.step
        begin = np.flatnonzero(np.append(True, step[1:] != step[:-1]))
        bounds = [*begin.tolist(), len(step)]
        for at, low, high in zip(step[begin].tolist(), bounds[:-1], bounds[1:], strict=True):
            if not 0 <= at < MAX_STEP:
                self._dropped["out_of_range"] += high - low
            elif at < self._next_step:
                self._dropped["late"] += high - low
            else:
                if at not in self._held:
                    self._held[at] = []
                    heapq.heappush(self._order, at)
                part = table.take(slice(low, high))
                alone = (high - low) * COPIED_SHARE < len(table)
                self._held[at].append(part.copy() if alone else part)
                self._held_rows += high - low
        ended = np.flatnonzero((table.kind == RecordKind.STEP) & (step >= 0) & (step < MAX_STEP))
        if len(ended):
            self._see_steps(
                table.rank[ended], step[ended], table.flags[ended],
                table.end_ns[ended] - table.start_ns[ended],
            )  # fmt: skip

    def _see_steps(
        self, rank: Int64Array, step: Int64Array, flags: Int64Array, took_ns: Int64Array
    ) -> None:
        """Take the STEP records that have arrived, (N,) each.

        A rank that times its steps on the device has whole ones only when those are there.
        """
        # The shortest: a rank that stood still must not use up the patience with others.
        for at in distinct(step).tolist():
            if at in self._held:
                ns = max(int(took_ns[step == at].min()), 0)
                self._duration_ns[at] = min(self._duration_ns.get(at, ns), ns)
        newest = self._last_step.copy()
        np.maximum.at(newest, rank, step)
        on_device = (flags & Flag.GPU_TIME) != 0
        np.maximum.at(self._last_on_device, rank[on_device], step[on_device])
        timed = self._last_on_device >= 0
        stopped = timed & (newest - self._last_on_device > DEVICE_PATIENCE_STEPS)
        self._last_on_device[stopped] = -1
        lasting = timed & ~stopped
        newest[lasting] = np.maximum(self._last_on_device, self._last_step)[lasting]
        moved = newest > self._last_step
        self._moved_ns[moved] = self._heard_ns[moved]
        self._given_up &= ~(moved & (newest >= self._next_step - 1))
        self._last_step = newest


def _table(parts: list[Table]) -> Table:
    """Return the rows of some tables by rank; those of one rank stay in their order."""
    if not parts:
        return Table(**{name: np.zeros(0, dtype=np.int64) for name in ("rank", *COLUMNS)})
    table = stack(parts) if len(parts) > 1 else parts[0]
    if (table.rank[1:] >= table.rank[:-1]).all():
        return table
    return table.take(_order(table.rank))


def _order(key: Int64Array) -> Int64Array:
    """Return the stable order of ``key``."""
    low = key.min()
    small = key.max() - low < _RADIX
    return np.argsort((key - low).astype(np.uint16) if small else key, kind="stable")
