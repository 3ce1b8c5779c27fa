"""All steps of a run that is analysed from files, kept packed in a temporary file.

What is drawn and compared afterwards depends on the answer, which is known at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from tempfile import SpooledTemporaryFile

import numpy as np

from paceline_service.analysis.blame.timeline import StepRow
from paceline_service.analysis.records import Int64Array
from paceline_service.export.step_blob import (
    FIGURES,
    PHASE_NAMES,
    pack_ranks,
    stack_per_rank,
    unpack_ranks,
)
from paceline_service.export.step_table import Floats, StepTable

MAX_MEMORY_BYTES = 32 << 20
"""Beyond it the steps are in a temporary file, which has no name and goes with the process."""


class StepArchive:
    """Keeps steps in the order in which they come, of which the numbers ascend."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115  closed by close()
        self._ends = [0]
        self.world_size = 0
        self.steps: list[int] = []
        self.durations_ns: list[int] = []
        self.slowest_ranks: list[int] = []
        self.measured: list[bool] = []
        """Whether a step has data of any rank: where sampling left it out it has times only."""
        self.steps_of_rank: Int64Array = np.zeros(0, dtype=np.int64)
        """(R,), in how many steps each rank has data."""

    def __len__(self) -> int:
        """Return the number of steps."""
        return len(self.steps)

    def add(self, rows: Iterable[StepRow]) -> None:
        """Keep steps."""
        self._file.seek(self._ends[-1])
        for row in rows:
            if not self.world_size:
                self.world_size = len(row.self_ns)
                self.steps_of_rank = np.zeros(self.world_size, dtype=np.int64)
            self.steps_of_rank += row.present
            packed = pack_ranks(
                stack_per_rank(row.self_ns, row.wait_ns, row.comm_ns, row.phase_self_ns)
            )
            self._file.write(packed)
            self._ends.append(self._ends[-1] + len(packed))
            self.steps.append(row.step)
            self.durations_ns.append(row.duration_ns)
            self.slowest_ranks.append(row.slowest_rank)
            self.measured.append(bool(row.present.any()))

    def per_rank(self, first: int, last: int, *, phases: bool = True) -> Iterator[Int64Array]:
        """Yield (10, R) of each of the places from ``first`` up to ``last`` (not included)."""
        for place in range(first, last):
            self._file.seek(self._ends[place])
            packed = self._file.read(self._ends[place + 1] - self._ends[place])
            yield unpack_ranks(packed, phases=phases)

    def history(self) -> StepTable | None:
        """Return the durations of all steps, without ranks; None where there are no steps."""
        if not self.steps:
            return None
        nobody = np.zeros((len(self), 0))
        return StepTable(
            ranks=(), steps=tuple(self.steps), duration_ns=self._durations(slice(None)),
            slowest_rank=tuple(self.slowest_ranks), self_ns=nobody, wait_ns=nobody, comm_ns=nobody,
        )  # fmt: skip

    def table(
        self,
        *,
        limit: int,
        first: int | None = None,
        ranks: Sequence[int] | None = None,
        phases: bool = False,
    ) -> StepTable | None:
        """Return up to ``limit`` steps from the step ``first`` on, else the newest ones."""
        if not self.steps:
            return None
        begin = max(len(self) - limit, 0)
        if first is not None:
            begin = int(np.searchsorted(self.steps, first))
        end = min(begin + limit, len(self))
        if begin >= end:
            return None
        chosen = range(self.world_size) if ranks is None else ranks
        index = np.array(chosen, dtype=np.intp)
        figures = np.stack(
            [_known(one[:, index]) for one in self.per_rank(begin, end, phases=phases)]
        )
        part = slice(begin, end)
        return StepTable(
            ranks=tuple(chosen),
            steps=tuple(self.steps[part]),
            duration_ns=self._durations(part),
            slowest_rank=tuple(self.slowest_ranks[part]),
            self_ns=figures[:, 0],
            wait_ns=figures[:, 1],
            comm_ns=figures[:, 2],
            phases=tuple(PHASE_NAMES) if phases else (),
            phase_ns=np.moveaxis(figures[:, FIGURES:], 1, 2) if phases else None,
        )

    def close(self) -> None:
        """Let go of the temporary file."""
        self._file.close()

    def _durations(self, part: slice) -> Floats:
        return np.array(self.durations_ns[part], dtype=np.float64)


def _known(per_rank: Int64Array) -> Floats:
    return np.where(per_rank < 0, np.nan, per_rank.astype(np.float64))
