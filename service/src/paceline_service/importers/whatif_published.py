"""S, M_W and M_S of a pipeline's timeline as its authors define them (Lin et al., OSDI'25).

The replay for live jobs knows groups and records (docs/math/whatif.md). This one knows what each
operation of this format waits for (``whatif_graph``) and takes no time between operations, as the
published model does, so that its figures can be compared with published ones digit by digit: an
operation begins when all before it have ended, and a transfer ends a fixed time after the last of
its group has begun.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.medians import median_of
from paceline_service.analysis.records import BoolArray, FloatArray
from paceline_service.importers.whatif_columns import TraceColumns
from paceline_service.importers.whatif_graph import (
    ACROSS_ROWS,
    OPTIMIZER,
    P2P,
    Graph,
    Name,
    Template,
    graph_of,
)

_LATEST_S = 0.01
"""A transfer that ends further before its group has begun took no time of its own."""
_TOP_PERCENT = 3
_BY_MEDIAN = ACROSS_ROWS | {*P2P, "layernorm-grads-all-reduce", "embedding-grads-all-reduce"}
_MAX_WALKED, _MAX_ADDED = 1_000_000, 1 << 30
"""Operations of all replays, and times that are added up in them: some seconds."""

_MAX_AT_ONCE = 1 << 22
"""Durations that are replayed together; 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The figures; ``m_w`` and ``m_s`` are None where nothing is lost."""

    slowdown: float
    m_w: float | None
    m_s: float | None


def published_figures(trace: TraceColumns) -> Published | None:
    """Return the figures; None for a trace that the published model does not describe."""
    computes = trace.is_a("forward-compute", "backward-compute")
    if not computes.any() or int(trace.chunk[computes].min()) < 0:
        return None
    template = Template(trace)
    if not template.start_s:
        return None
    walked = len(template.start_s) * (template.rows + template.stages)
    if walked > _MAX_WALKED or walked * (len(trace) // len(template.start_s)) > _MAX_ADDED:
        return None
    graph = graph_of(template)
    order = graph.in_order() if graph is not None else None
    times = _times_of(trace, list(template.start_s), template.rows)
    if graph is None or order is None or times is None:
        return None
    return _Replay(graph, order, times, list(template.start_s)).figures()


def _times_of(
    trace: TraceColumns, names: list[Name], rows: int
) -> tuple[FloatArray, FloatArray] | None:
    """Return start and end of each operation, (O, D, S) s; None where one is missing or twice."""
    steps, step = np.unique(trace.step, return_inverse=True)
    if len(trace) != len(names) * rows * len(steps):
        return None
    index_of = {name: index for index, name in enumerate(names)}
    kinds = [trace.names[kind] for kind in trace.optype.tolist()]
    try:
        index = np.array(
            [index_of[key] for key in zip(kinds, trace.seq_id.tolist(), trace.stage.tolist(),
                                          strict=True)]
        )  # fmt: skip
    except KeyError:
        return None
    start = np.full((len(names), rows, len(steps)), np.nan)
    end = start.copy()
    start[index, trace.dp_rank, step] = trace.start_ns / 1e9
    end[index, trace.dp_rank, step] = trace.end_ns / 1e9
    return None if np.isnan(start).any() else (start, end)


class _Replay:
    """Steps replayed with durations as they were, as they ought to be, or a part of each."""

    def __init__(
        self, graph: Graph, order: list[Name], times: tuple[FloatArray, FloatArray],
        names: list[Name],
    ) -> None:  # fmt: skip
        self._names = names
        index = {name: number for number, name in enumerate(names)}
        self._order = [index[name] for name in order]
        self._before = {index[n]: [index[o] for o in others] for n, others in graph.before.items()}
        self._groups = [[index[name] for name in group] for group in graph.groups]
        self._group_of = {index[name]: group for name, group in graph.group_of.items()}
        self._across = np.array([name[0] in ACROSS_ROWS for name in names])
        self._last = [index[name] for name in names if name[0] == OPTIMIZER]
        start, end = times
        self._was = end - start
        for group in self._groups:
            begun = start[group].max(axis=0)
            if self._across[group[0]]:
                begun = np.broadcast_to(begun.max(axis=0), begun.shape)
            taken = end[group] - begun
            self._was[group] = np.where(taken <= -_LATEST_S, 0.0, taken)
        self._ideal = self._averages()

    def figures(self) -> Published:
        """Return S, and what the slowest ranks and the last stage take of it."""
        stages = np.array([name[2] for name in self._names])
        of_row = [
            np.arange(self._was.shape[1])[:, None] == row for row in range(self._was.shape[1])
        ]
        of_stage = [(stages == stage)[:, None, None] for stage in range(int(stages.max()) + 1)]
        nothing, everything = np.zeros((1, 1, 1), np.bool_), np.ones((1, 1, 1), np.bool_)
        ideal, was, *only = self._steps_s([nothing, everything, *of_row, *of_stage])
        by_row, by_stage = only[: len(of_row)], only[len(of_row) :]
        # Of ranks that are as slow as each other those of the first stage come first.
        ranks = [
            (-min(by_row[row], by_stage[stage]), stage, row)
            for row in range(len(of_row))
            for stage in range(len(of_stage))
        ]
        worst = np.zeros(self._was.shape, dtype=np.bool_)
        for _, stage, row in sorted(ranks)[: -(-len(ranks) * _TOP_PERCENT // 100)]:
            worst |= of_row[row] & of_stage[stage]
        loss = was - ideal
        shares: list[float | None] = [None, None]
        if loss > 0:
            shares = [(was - mended) / loss for mended in self._steps_s([~worst, ~of_stage[-1]])]
        return Published(slowdown=was / ideal, m_w=shares[0], m_s=shares[1])

    def _steps_s(self, kept: Sequence[BoolArray]) -> list[float]:
        """Return how long steps take on average, for each choice of what is kept as it was."""
        at_once = max(1, _MAX_AT_ONCE // self._was.size)
        found: list[float] = []
        for first in range(0, len(kept), at_once):
            chosen = [np.where(k, self._was, self._ideal) for k in kept[first : first + at_once]]
            found += self._replayed(np.stack(chosen, axis=1)).tolist()
        return found

    def _replayed(self, length: FloatArray) -> FloatArray:
        """Return (K,) the mean step of K choices of durations, (O, K, D, S)."""
        begin = np.zeros_like(length)
        end = np.zeros_like(length)
        begun = [0] * len(self._groups)
        for one in self._order:
            for other in self._before[one]:
                np.maximum(begin[one], end[other], out=begin[one])
            number = self._group_of.get(one)
            if number is None:
                np.add(begin[one], length[one], out=end[one])
                continue
            begun[number] += 1
            group = self._groups[number]
            if begun[number] < len(group):
                continue
            latest = begin[group[0]]
            for other in group[1:]:
                latest = np.maximum(latest, begin[other])
            if self._across[one]:
                latest = latest.max(axis=1, keepdims=True)
            for other in group:
                np.add(latest, length[other], out=end[other])
        closed: FloatArray = end[self._last].max(axis=(0, 2)).mean(axis=1)
        return closed

    def _averages(self) -> FloatArray:
        """Return what each type takes: computations their mean, transfers their median."""
        kinds = np.array([name[0] for name in self._names])
        ideal = np.empty_like(self._was)
        for kind in set(kinds.tolist()):
            mine = kinds == kind
            average = median_of if kind in _BY_MEDIAN else np.mean
            ideal[mine] = average(self._was[mine])
        return ideal
