"""Records of many ranks in one table, handed out step by step once a step is complete."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.records import COLUMNS, BoolArray, Int64Array, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns of N records with the rank of each; see ``Records`` for units."""

    rank: Int64Array
    kind: Int64Array
    code: Int64Array
    group: Int64Array
    seq: Int64Array
    step: Int64Array
    peer: Int64Array
    payload_bytes: Int64Array
    start_ns: Int64Array
    end_ns: Int64Array
    join_ns: Int64Array
    issue_ns: Int64Array
    flags: Int64Array

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.rank)

    def take(self, index: NDArray[np.intp] | BoolArray | slice) -> Table:
        """Return the rows that ``index`` selects."""
        return Table(**{name: getattr(self, name)[index] for name in TABLE_COLUMNS})


DEVICE_PATIENCE_STEPS = 32
"""A rank whose newest step on the device is further back has stopped timing them."""
TABLE_COLUMNS = tuple(field.name for field in fields(Table))


def stack(parts: list[Table]) -> Table:
    """Return tables one under the other."""
    return Table(**{n: np.concatenate([getattr(p, n) for p in parts]) for n in TABLE_COLUMNS})


def as_table(records: Records) -> Table:
    """Return records of one rank as a table."""
    rank = np.full(len(records), records.rank, dtype=np.int64)
    return Table(rank=rank, **{name: getattr(records, name) for name in COLUMNS})


class StepPool:
    """Holds records until their step is complete on every rank that is expected.

    A step is complete when each expected rank has written the STEP record of a step
    ``grace_steps`` later; ranks that have ended, or lie ``patience_steps`` behind the
    fastest, are not waited for.
    """

    def __init__(self, world_size: int, *, grace_steps: int, patience_steps: int) -> None:
        self._parts: list[Table] = []
        self._next_step = 0
        self._last_step = np.full(world_size, -1, dtype=np.int64)
        self._last_on_device: dict[int, int] = {}
        self._ended = np.zeros(world_size, dtype=np.bool_)
        self._grace_steps = grace_steps
        self._patience_steps = patience_steps
        self.late_records = 0

    def add(self, records: Records) -> None:
        """Take records of one rank."""
        table = as_table(records)
        late = table.step < self._next_step
        if late.any():
            self.late_records += int(late.sum())
            table = table.take(~late)
        if not len(table):
            return
        self._parts.append(table)
        steps = table.kind == RecordKind.STEP
        if steps.any():
            self._see_steps(records.rank, table.step[steps], table.flags[steps])

    def end(self, rank: int) -> None:
        """Expect nothing more from ``rank``."""
        self._ended[rank] = True

    def resume(self, rank: int) -> None:
        """Expect records from ``rank`` again."""
        self._ended[rank] = False

    def _see_steps(self, rank: int, steps: Int64Array, flags: Int64Array) -> None:
        """A rank that times its steps on the device has whole ones only when those are there."""
        on_device = (flags & Flag.GPU_TIME) != 0
        last = int(steps.max())
        if on_device.any():
            self._last_on_device[rank] = int(steps[on_device].max())
        if rank in self._last_on_device:
            if last - self._last_on_device[rank] <= DEVICE_PATIENCE_STEPS:
                last = self._last_on_device[rank]
            else:  # its timers were switched off
                del self._last_on_device[rank]
        self._last_step[rank] = max(int(self._last_step[rank]), last)

    def complete(self, *, final: bool = False) -> Iterator[tuple[int, Table]]:
        """Yield each newly complete step with its rows, in order."""
        fastest = int(self._last_step.max(initial=-1))
        if final:
            ready = fastest + 1
        else:
            waited_for = ~self._ended & (self._last_step >= fastest - self._patience_steps)
            slowest = int(self._last_step[waited_for].min(initial=fastest))
            ready = slowest + 1 - (0 if self._ended.all() else self._grace_steps)
        if ready <= self._next_step or not self._parts:
            return
        pool = stack(self._parts)
        now = pool.step < ready
        self._parts = [pool.take(~now)] if not now.all() else []
        done = pool.take(now)
        done = done.take(np.argsort(done.step, kind="stable"))
        self._next_step = ready
        if not len(done):
            return  # the numbers of steps have a gap
        steps, first = np.unique(done.step, return_index=True)
        for step, begin, end in zip(steps, first, [*first[1:], len(done)], strict=True):
            yield int(step), done.take(slice(int(begin), int(end)))
