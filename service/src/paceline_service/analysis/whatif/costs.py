"""What slow ranks and stages cost a job: S, S_w, M_W, M_S (docs/math/whatif.md).

What-if analysis after Lin et al., OSDI'25: a step is replayed with every computation at the mean
of its kind and every transfer at the median of its kind, then with some ranks left as they were.
"""

from __future__ import annotations

import math

import numpy as np

from paceline.dataclass import dataclass
from paceline.vocabulary import Phase
from paceline_service.analysis.evidence.stages import Places
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray, Int64Array
from paceline_service.analysis.sets import distinct
from paceline_service.analysis.whatif.graph import Graph
from paceline_service.analysis.whatif.replay import COLUMNS, Replay

TOP_SHARE = 0.03
"""Share of the ranks that M_W repairs (Lin et al.)."""
LEAST_ROWS, MAX_ROWS = 4, 32
"""Replicas, or ranks without a pipeline, that are replayed one by one: those that work most, twice
as many as M_W may repair, within these bounds. The others count as not slow."""
LEAST_LOSS = 0.01
"""Below this share of T, T - T_ideal is jitter, and a share of it means nothing."""


@dataclass(slots=True)
class WhatIf:
    """Sums over replayed steps, ns; they add up with ``+``, the ratios come from them.

    Attributes:
        steps: how many were replayed.
        took_ns: how long they really took.
        base_ns: T, replayed as they were.
        ideal_ns: T_ideal, everything at the mean or median of its kind.
        even_ns: with the computations of all stages as long as those of the average stage.
        fixed_top_ns: with the slowest 3 % of the ranks repaired.
        fixed_stage_ns: (S,) with one stage repaired.
        only_stage_ns: (S,) with only one stage as it was.
        only_row_ns: (R,) with only the rank's replica as it was (itself without a pipeline).
        row_ideal_ns: (R,) T_ideal of the steps in which that was replayed.
        stage_work_ns: (S,) forward and backward of a rank of each stage, the median.
        stage_of: (R,) stage of each rank, -1 where unknown.
        top: the slowest 3 % of the ranks, the slowest first.
    """

    steps: int
    took_ns: float
    base_ns: float
    ideal_ns: float
    even_ns: float
    fixed_top_ns: float
    fixed_stage_ns: FloatArray
    only_stage_ns: FloatArray
    only_row_ns: FloatArray
    row_ideal_ns: FloatArray
    stage_work_ns: FloatArray
    stage_of: Int64Array
    top: tuple[int, ...] = ()

    def __add__(self, other: WhatIf) -> WhatIf:
        """Return both together; they must be of the same job and stages."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _SUMS}
        return WhatIf(**sums, stage_of=other.stage_of, top=other.top)

    def __sub__(self, earlier: WhatIf) -> WhatIf:
        """Return what came after ``earlier``."""
        sums = {name: getattr(self, name) - getattr(earlier, name) for name in _SUMS}
        return WhatIf(**sums, stage_of=self.stage_of, top=self.top)

    @property
    def slowdown(self) -> float:
        """S = T / T_ideal."""
        return self.base_ns / self.ideal_ns if self.ideal_ns > 0 else 1.0

    @property
    def error_ratio(self) -> float:
        """How far the replay of the steps as they were is from the steps, relative."""
        return self.base_ns / self.took_ns - 1 if self.took_ns > 0 else 0.0

    @property
    def even_ratio(self) -> float:
        """Share by which the steps would be shorter were all stages equally heavy."""
        return max(1 - self.even_ns / self.base_ns, 0.0) if self.base_ns > 0 else 0.0

    @property
    def stage_slowdowns(self) -> FloatArray:
        """(S,) S of each stage: only it is as it was."""
        if self.ideal_ns <= 0:
            return np.ones(len(self.only_stage_ns))
        return np.asarray(self.only_stage_ns / self.ideal_ns)

    @property
    def rank_slowdowns(self) -> FloatArray:
        """(R,) S_w: the smaller of its replica's and its stage's; 1 where not replayed."""
        own = np.ones(len(self.only_row_ns))
        np.divide(self.only_row_ns, self.row_ideal_ns, out=own, where=self.row_ideal_ns > 0)
        if len(self.only_stage_ns):
            of_stage = np.append(self.stage_slowdowns, 1.0)[self.stage_of]
            own = np.minimum(own, of_stage)
        return own

    @property
    def top_share(self) -> float | None:
        """M_W, the share of the loss that goes with the slowest 3 % of the ranks; None if none."""
        return self._share(self.fixed_top_ns)

    def stage_share(self, stage: int) -> float | None:
        """Return M_S of a stage, the share of the loss that goes with it; None if there is none."""
        return self._share(float(self.fixed_stage_ns[stage]))

    def _share(self, fixed_ns: float) -> float | None:
        loss = self.base_ns - self.ideal_ns
        return (self.base_ns - fixed_ns) / loss if loss > LEAST_LOSS * self.base_ns else None


_SUMS = (
    "steps", "took_ns", "base_ns", "ideal_ns", "even_ns", "fixed_top_ns", "fixed_stage_ns",
    "only_stage_ns", "only_row_ns", "row_ideal_ns", "stage_work_ns",
)  # fmt: skip


def what_if(graph: Graph, places: Places, before: WhatIf | None = None) -> WhatIf | None:
    """Replay some steps in all the ways that the figures need.

    Args:
        graph: the steps.
        places: of the R ranks.
        before: what earlier steps gave; the slowest 3 % are chosen from both.

    Returns:
        The sums with those of ``before``, or None where the steps cannot be ordered.
    """
    replay = Replay(graph)
    if replay.circular:
        return None
    ideal = _Ideal(graph)
    ranks, stages = len(places.stage), places.stages
    work_of_rank: FloatArray = np.bincount(
        graph.rank, weights=graph.work_ns, minlength=ranks
    ).astype(np.float64)
    row_of = places.replica if stages else np.arange(ranks)
    rows = _rows(row_of, work_of_rank)
    everyone, nobody = np.ones(ranks, dtype=np.bool_), np.zeros(ranks, dtype=np.bool_)
    in_stage = [places.stage == stage for stage in range(stages)]
    kept = [everyone, nobody, *(~of for of in in_stage), *in_stage]
    kept += [row_of == row for row in rows]
    total = np.concatenate(
        [
            replay.step_ns(*ideal.scenarios(kept[first : first + COLUMNS])).sum(axis=0)
            for first in range(0, len(kept), COLUMNS)
        ]
    )
    stage_work = _stage_work(graph, places, work_of_rank)
    even_ns = total[0]
    if stages:
        even = (graph.work_ns * _levelled(graph, places, stage_work))[:, None]
        even_ns = replay.step_ns(even, graph.transfer_ns[:, None]).sum()
    ideal_ns = float(total[1])
    only_row, row_ideal = np.zeros(ranks), np.zeros(ranks)
    for index, row in enumerate(rows):
        only_row[row_of == row] = total[2 + 2 * stages + index]
        row_ideal[row_of == row] = ideal_ns
    sums = WhatIf(
        steps=len(graph.took_ns),
        took_ns=float(graph.took_ns.sum()),
        base_ns=float(total[0]),
        ideal_ns=ideal_ns,
        even_ns=float(even_ns),
        fixed_top_ns=0.0,
        fixed_stage_ns=total[2 : 2 + stages],
        only_stage_ns=total[2 + stages : 2 + 2 * stages],
        only_row_ns=only_row,
        row_ideal_ns=row_ideal,
        stage_work_ns=stage_work * len(graph.took_ns),
        stage_of=places.stage,
    )
    if before is not None:
        sums = before + sums
    count = math.ceil(TOP_SHARE * ranks)
    sums.top = tuple(map(int, np.argsort(-sums.rank_slowdowns, kind="stable")[:count]))
    repaired = everyone.copy()
    repaired[list(sums.top)] = False
    sums.fixed_top_ns += float(replay.step_ns(*ideal.scenarios([repaired])).sum())
    return sums


class _Ideal:
    """Durations as they were and as they should be, and mixtures of the two."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        op_ns = np.bincount(graph.op, weights=graph.work_ns, minlength=len(graph.op_kind))
        worked = op_ns > 0
        kinds = int(graph.op_kind.max(initial=0)) + 1
        count = np.bincount(graph.op_kind[worked], minlength=kinds)
        total = np.bincount(graph.op_kind[worked], weights=op_ns[worked], minlength=kinds)
        mean = total / np.maximum(count, 1)
        scale = np.ones(len(op_ns))
        np.divide(mean[graph.op_kind], op_ns, out=scale, where=worked)
        self._work_ns = graph.work_ns * scale[graph.op]
        self._transfer_ns = _medians(graph.transfer_ns, graph.transfer_kind)
        self._first = np.searchsorted(graph.arrival_instance, np.arange(len(graph.transfer_ns)))

    def scenarios(self, kept: list[BoolArray]) -> tuple[FloatArray, FloatArray]:
        """Return (P, C) work and (I, C) transfers with the ranks of C masks as they were.

        A transfer is as it was when one of those that it waits for is.
        """
        graph = self._graph
        keep = np.stack(kept, axis=1)
        work = np.where(keep[graph.rank], graph.work_ns[:, None], self._work_ns[:, None])
        of_instance = np.zeros((len(graph.transfer_ns), len(kept)), dtype=np.bool_)
        if len(graph.arrival):
            arrivals = keep[graph.rank[graph.arrival]]
            np.logical_or.at(of_instance, graph.arrival_instance, arrivals)
        transfer = np.where(of_instance, graph.transfer_ns[:, None], self._transfer_ns[:, None])
        return work, transfer


def _medians(values: FloatArray, kinds: Int64Array) -> FloatArray:
    """Return for each value the median of its kind; ``kinds`` is (I, any)."""
    if not len(values):
        return values.copy()
    unique, of_kind = np.unique(kinds, axis=0, return_inverse=True)
    of_kind = of_kind.reshape(-1)
    order = np.lexsort((values, of_kind))
    count = np.bincount(of_kind, minlength=len(unique))
    begin = np.cumsum(count) - count
    sorted_values = values[order]
    median = (sorted_values[begin + (count - 1) // 2] + sorted_values[begin + count // 2]) / 2
    return np.asarray(median[of_kind], dtype=np.float64)


def _rows(row_of: Int64Array, work_of_rank: FloatArray) -> Int64Array:
    """Return the rows to replay one by one: those of the ranks that work most."""
    known = row_of >= 0
    if not known.any():
        return np.zeros(0, dtype=np.int64)
    most = np.zeros(int(row_of.max()) + 1)
    np.maximum.at(most, row_of[known], work_of_rank[known])
    rows = distinct(row_of[known])
    count = int(np.clip(2 * math.ceil(TOP_SHARE * len(row_of)), LEAST_ROWS, MAX_ROWS))
    return rows[np.argsort(-most[rows], kind="stable")[:count]]


def _pipelined(graph: Graph) -> BoolArray:
    """Return which points' work runs once per microbatch: forward and backward, else all."""
    kind = graph.op_kind[graph.op]
    chosen = (kind == Phase.FORWARD) | (kind == Phase.BACKWARD)
    return chosen if chosen.any() else np.ones(len(graph), dtype=np.bool_)


def _stage_work(graph: Graph, places: Places, work_of_rank: FloatArray) -> FloatArray:
    """Return (S,) what a rank of each stage works per step, ns: the median of its ranks."""
    chosen = _pipelined(graph)
    own = np.bincount(
        graph.rank[chosen], weights=graph.work_ns[chosen], minlength=len(work_of_rank)
    ) / max(len(graph.took_ns), 1)
    return np.array([median_of(own[places.stage == stage]) for stage in range(places.stages)])


def _levelled(graph: Graph, places: Places, stage_work: FloatArray) -> FloatArray:
    """Return (P,) the factors that make all stages as heavy as their average."""
    factor = np.ones(len(graph))
    if len(stage_work) and (stage_work > 0).all():
        of_stage = np.append(stage_work.mean() / stage_work, 1.0)
        factor = np.where(_pipelined(graph), of_stage[places.stage[graph.rank]], 1.0)
    return factor
