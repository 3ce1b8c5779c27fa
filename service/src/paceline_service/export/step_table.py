"""Steps of a job as arrays, from the columns that the API answers (docs/api.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paceline.dataclass import dataclass

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTable:
    """N steps of R ranks, ns; NaN where a rank has no data. Durations are always known.

    ``phase_ns`` is (N, R, P), or None where phases were not asked for.
    """

    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    duration_ns: Floats
    slowest_rank: tuple[int, ...]
    self_ns: Floats
    wait_ns: Floats
    comm_ns: Floats
    phases: tuple[str, ...] = ()
    phase_ns: Floats | None = None
    start_wall_ns: tuple[int, ...] = ()
    """-1 where it is not known."""

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.steps)

    def take(self, index: slice) -> StepTable:
        """Return some of the steps."""
        return StepTable(
            ranks=self.ranks, steps=self.steps[index], duration_ns=self.duration_ns[index],
            slowest_rank=self.slowest_rank[index], self_ns=self.self_ns[index],
            wait_ns=self.wait_ns[index], comm_ns=self.comm_ns[index], phases=self.phases,
            phase_ns=None if self.phase_ns is None else self.phase_ns[index],
            start_wall_ns=self.start_wall_ns[index],
        )  # fmt: skip

    def places(self, ranks: Sequence[int]) -> list[int]:
        """Return the columns of ``ranks``, as far as they are in the table."""
        if self.ranks == tuple(range(len(self.ranks))):
            return [rank for rank in ranks if 0 <= rank < len(self.ranks)]
        column = {rank: place for place, rank in enumerate(self.ranks)}
        return [column[rank] for rank in ranks if rank in column]

    def mean_self_ns(self) -> Floats:
        """Return the mean self time of each rank (R,), NaN where nothing is known."""
        return mean(self.self_ns, axis=0)


def step_table(columns: Mapping[str, Any]) -> StepTable:
    """Return the steps of one answer of the API as a table."""
    ranks = tuple(columns["ranks"])
    steps = tuple(columns["steps"])
    shape = (len(steps), len(ranks))
    phases = tuple(columns.get("phases") or ())
    told = columns.get("phase_self_ns")
    phase_ns = None
    if told is not None and phases and all(shape):
        nothing = [None] * len(phases)
        rows = [[row if row is not None else nothing for row in step] for step in told]
        phase_ns = np.array(rows, dtype=np.float64).reshape(*shape, len(phases))
    return StepTable(
        ranks=ranks,
        steps=steps,
        duration_ns=np.nan_to_num(np.array(columns["duration_ns"], dtype=np.float64)),
        slowest_rank=tuple(-1 if rank is None else rank for rank in columns["slowest_rank"]),
        self_ns=_array(columns["self_ns"], shape),
        wait_ns=_array(columns["wait_ns"], shape),
        comm_ns=_array(columns["comm_ns"], shape),
        phases=phases,
        phase_ns=phase_ns,
        start_wall_ns=tuple(
            -1 if at is None else at for at in columns.get("start_wall_ns") or [None] * len(steps)
        ),
    )


def join(first: StepTable | None, second: StepTable, *, keep: int) -> StepTable:
    """Return the newest ``keep`` steps of both, ``second`` being the later one, without phases."""
    newest = first.steps[-1] if first is not None and len(first) else -1
    begin = next((place for place, step in enumerate(second.steps) if step > newest), len(second))
    second = second.take(slice(begin, None))
    if first is None or first.ranks != second.ranks:
        return second.take(slice(-keep, None))
    return StepTable(
        ranks=first.ranks,
        steps=(first.steps + second.steps)[-keep:],
        duration_ns=np.concatenate([first.duration_ns, second.duration_ns])[-keep:],
        slowest_rank=(first.slowest_rank + second.slowest_rank)[-keep:],
        self_ns=np.concatenate([first.self_ns, second.self_ns])[-keep:],
        wait_ns=np.concatenate([first.wait_ns, second.wait_ns])[-keep:],
        comm_ns=np.concatenate([first.comm_ns, second.comm_ns])[-keep:],
        phases=first.phases,
        start_wall_ns=(first.start_wall_ns + second.start_wall_ns)[-keep:],
    )


def mean(values: Floats, *, axis: int | tuple[int, ...]) -> Floats:
    """Return the mean over ``axis`` of what is known, NaN where nothing is."""
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def teeth(table: StepTable, every: int) -> Iterator[slice]:
    """Yield the places of ``every`` steps at a time, aligned to multiples of ``every``."""
    begin = 0
    for place in range(1, len(table) + 1):
        if place == len(table) or table.steps[place] // every != table.steps[begin] // every:
            yield slice(begin, place)
            begin = place


def _array(rows: Sequence[Sequence[float | None]], shape: tuple[int, int]) -> Floats:
    return np.array(rows, dtype=np.float64).reshape(shape)
