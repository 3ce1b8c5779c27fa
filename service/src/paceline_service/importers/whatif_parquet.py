"""Reads op-level timelines of pipeline jobs in Parquet, as published with Lin et al., OSDI'25.

A directory holds ``trace-NAME.parquet`` and, if it was kept, ``meta-NAME.yaml`` with the sizes of
the job. Computations become phases, everything between ranks becomes collectives, so that the
verdict is that of the code that judges live jobs (docs/offline.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.errors import InputError
from paceline.event_log import ROW_FIELDS, LogGroup
from paceline.vocabulary import Flag, Op, Phase, RecordKind
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import Report
from paceline_service.analysis.sets import distinct
from paceline_service.importers.faults import Faults
from paceline_service.importers.limits import MAX_RANKS
from paceline_service.importers.log import EventLog
from paceline_service.importers.spool import WIDTH
from paceline_service.importers.whatif_columns import (
    TraceColumns,
    read_columns,
)
from paceline_service.importers.whatif_pairs import FORWARD, pair_transfers
from paceline_service.importers.whatif_published import Published, published_figures

_COMPUTE = {
    "forward-compute": Phase.FORWARD,
    "backward-compute": Phase.BACKWARD,
    "optimizer": Phase.OPTIMIZER,
    "gc": Phase.GC,
}
_STAGE_WIDE = {
    "params-all-gather": Op.ALL_GATHER,
    "grads-reduce-scatter": Op.REDUCE_SCATTER,
    "separate-grads-all-reduce": Op.ALL_REDUCE,
}
"""Among the data-parallel ranks of one stage."""
_LAYERNORM, _EMBEDDING, _CLIP = (
    "layernorm-grads-all-reduce", "embedding-grads-all-reduce", "optimizer-clip-main-grad",
)  # fmt: skip
_TRANSFERS = ("forward-send", "forward-recv", "backward-send", "backward-recv")
BETWEEN_STEPS_NS = 1_000_000
"""Steps are laid one after the other; what was between them the trace does not tell."""
OVERLAP_NS = 20_000
"""Operations of one stream may overlap by the rounding of their times; more is concurrency."""
_META_LINE = re.compile(r"^([a-z_]+)\s*:\s*(.+?)\s*$")
_COLUMN = {name: index for index, name in enumerate(ROW_FIELDS)}


def read_what_if(paths: Sequence[Path], faults: Faults) -> EventLog:
    """Read one trace as the log of a job.

    Raises:
        InputError: it is not one trace, or cannot be read.
    """
    if len(paths) != 1:
        raise InputError(
            f"{len(paths)} traces: {', '.join(path.name for path in paths[:4])}; each is a job of "
            "its own: give one at a time"
        )
    (path,) = paths
    trace = read_columns(path, faults)
    meta = _read_meta(path)
    known = trace.is_a(*_COMPUTE, *_STAGE_WIDE, _LAYERNORM, _EMBEDDING, _CLIP)
    known |= np.array([any(t in n for t in _TRANSFERS) for n in trace.names])[trace.optype]
    if not known.all():
        left = sorted({trace.names[int(i)] for i in distinct(trace.optype[~known])})
        message = f"operations of unknown types are left out: {', '.join(left)[:300]}"
        faults.add("unknown_line", path, None, message)
        faults.counts["unknown_line"] += int((~known).sum()) - 1
        trace = trace.take(known)
    if not trace.is_a("forward-compute", "backward-compute").any():
        raise InputError(
            f"{path} holds no forward-compute and no backward-compute operation; its types are "
            f"{', '.join(trace.names)[:300]}"
        )
    log = _Builder(trace, path, faults, meta).build()
    log.finish = partial(_with_published, published_figures(trace))
    return log


def _with_published(figures: Published | None, report: Report) -> Report:
    """Give the shares of the loss by the model of the format's authors, where it describes a trace.

    Theirs knows what each operation waits for, so it is the better one here (docs/math/whatif.md).
    """
    if figures is None or report.what_if is None:
        return report
    stages = [dict(stage) for stage in report.what_if["stages"]]
    if stages:
        stages[-1]["share"] = figures.m_s
    block = {
        **report.what_if, "slowdown": figures.slowdown, "m_w": figures.m_w, "m_s": figures.m_s,
        "stages": stages,
    }  # fmt: skip
    return replace(report, what_if=block)


class _Builder:
    def __init__(
        self, trace: TraceColumns, path: Path, faults: Faults, meta: dict[str, str]
    ) -> None:
        self._trace = trace
        self._path = path
        self._faults = faults
        self._tensor_rank, self._rank_of = _grid(trace, path)
        told = meta.get("world_size", "")
        declared = int(told) if told.isdecimal() and len(told) < 10 else 0
        size = max(int(trace.rank.max()) + 1, min(declared, MAX_RANKS))
        self._log = EventLog(
            world_size=size,
            faults=faults,
            job=re.sub(r"[^A-Za-z0-9._-]", "-", meta.get("trial_name", ""))[:128],
        )
        self._shift_ns = self._starts_of_steps()

    def build(self) -> EventLog:
        log = self._log
        tables = [self._phases(), self._collectives(), self._transfers(), self._steps()]
        rows = np.concatenate([table for _, table in tables])
        rank = np.concatenate([ranks for ranks, _ in tables])
        time_order = np.lexsort((rows[:, _COLUMN["kind"]] == RecordKind.STEP,
                                 rows[:, _COLUMN["start_ns"]], rows[:, _COLUMN["step"]],
                                 rank))  # fmt: skip
        rows, rank = rows[time_order], rank[time_order]
        for part in np.split(np.arange(len(rank)), np.flatnonzero(rank[1:] != rank[:-1]) + 1):
            one, mine = int(rank[part[0]]), rows[part]
            log.spool.replace(one, mine)
            log.ranks_with_steps.add(one)
            begin, end = mine[:, _COLUMN["start_ns"]], mine[:, _COLUMN["end_ns"]]
            log.extents[one] = (int(begin.min()), int(end.max()))
        return log

    def _starts_of_steps(self) -> Int64Array:
        """Return (N,) by how much each operation's times are moved: steps follow each other."""
        steps, of_step = np.unique(self._trace.step, return_inverse=True)
        length = np.zeros(len(steps), dtype=np.int64)
        np.maximum.at(length, of_step, self._trace.end_ns)
        begin = np.cumsum(length + BETWEEN_STEPS_NS) - length
        return np.asarray(begin[of_step], dtype=np.int64)

    def _rows(self, index: NDArray[np.intp], kind: RecordKind) -> Int64Array:
        table = np.zeros((len(index), WIDTH), dtype=np.int64)
        table[:, _COLUMN["kind"]] = kind
        table[:, _COLUMN["step"]] = self._trace.step[index]
        table[:, _COLUMN["peer"]] = -1
        table[:, _COLUMN["start_ns"]] = self._trace.start_ns[index] + self._shift_ns[index]
        table[:, _COLUMN["end_ns"]] = self._trace.end_ns[index] + self._shift_ns[index]
        return table

    def _phases(self) -> tuple[Int64Array, Int64Array]:
        trace = self._trace
        chosen = np.flatnonzero(trace.is_a(*_COMPUTE) & (trace.end_ns > trace.start_ns))
        table = self._rows(chosen, RecordKind.PHASE)
        code = np.array([int(_COMPUTE.get(name, Phase.HOST)) for name in trace.names])
        table[:, _COLUMN["code"]] = code[trace.optype[chosen]]
        return trace.rank[chosen], table

    def _steps(self) -> tuple[Int64Array, Int64Array]:
        trace = self._trace
        new = np.append(True, (trace.rank[1:] != trace.rank[:-1])
                        | (trace.step[1:] != trace.step[:-1]))  # fmt: skip
        first = np.flatnonzero(new)
        table = self._rows(first, RecordKind.STEP)
        last_ns = np.maximum.reduceat(trace.end_ns, first)
        table[:, _COLUMN["end_ns"]] = last_ns + self._shift_ns[first]
        return trace.rank[first], table

    def _group(self, name: str, ranks: Int64Array, mesh_dim: str) -> int:
        self._log.groups.append(
            LogGroup(name=name, ranks=tuple(map(int, ranks[ranks >= 0])), mesh_dim=mesh_dim)
        )
        return len(self._log.groups) - 1

    def _collectives(self) -> tuple[Int64Array, Int64Array]:
        trace, cells = self._trace, self._rank_of
        data, stages, tensor = cells.shape
        group = np.full(len(trace), -1, dtype=np.int64)
        stage_wide = trace.is_a(*_STAGE_WIDE)
        for stage in range(stages):
            for t in range(tensor):
                index = self._group(f"dp.stage{stage}.tp{t}", cells[:, stage, t], "dp")
                here = stage_wide & (trace.stage == stage) & (self._tensor_rank == t)
                group[here] = index
        if (norm := trace.is_a(_LAYERNORM)).any():
            for row in range(data):
                for stage in range(stages):
                    index = self._group(f"tp.dp{row}.stage{stage}", cells[row, stage], "tp")
                    group[norm & (trace.dp_rank == row) & (trace.stage == stage)] = index
        if (embedding := trace.is_a(_EMBEDDING)).any():
            ends = [0] if stages == 1 else [0, stages - 1]
            for row in range(data):
                for t in range(tensor):
                    index = self._group(f"embedding.dp{row}.tp{t}", cells[row, ends, t], "embd")
                    group[embedding & (trace.dp_rank == row) & (self._tensor_rank == t)] = index
        if (clip := trace.is_a(_CLIP)).any():
            group[clip] = self._group("all", np.sort(cells[cells >= 0]), "")
        chosen = np.flatnonzero(group >= 0)
        table = self._rows(chosen, RecordKind.COLLECTIVE)
        op = np.array([int(_STAGE_WIDE.get(name, Op.ALL_REDUCE)) for name in trace.names])
        table[:, _COLUMN["code"]] = op[trace.optype[chosen]]
        table[:, _COLUMN["group"]] = group[chosen]
        table[:, _COLUMN["seq"]] = self._sequence(chosen, group[chosen])
        self._join(chosen, table)
        return trace.rank[chosen], table

    def _sequence(self, chosen: NDArray[np.intp], group: Int64Array) -> Int64Array:
        """Number a group's collectives by what they are, so that a lost one shifts no other."""
        trace = self._trace
        key = np.stack([group, trace.step[chosen], trace.seq_id[chosen], trace.optype[chosen]], 1)
        unique, inverse = np.unique(key, axis=0, return_inverse=True)
        begin = np.searchsorted(unique[:, 0], unique[:, 0])
        return np.asarray((np.arange(len(unique)) - begin)[inverse.reshape(-1)], dtype=np.int64)

    def _transfers(self) -> tuple[Int64Array, Int64Array]:
        trace = self._trace
        pairs = pair_transfers(trace, self._rank_of, self._tensor_rank)
        if pairs.unpaired:
            message = "the two sides of a link report different numbers of transfers in a step"
            self._faults.add("unpaired", self._path, None, message)
            self._faults.counts["unpaired"] += pairs.unpaired - 1
        data, _, tensor = self._rank_of.shape
        groups = np.zeros((2, data, tensor), dtype=np.int64)
        for direction, name in enumerate(("forward", "backward")):
            for row in range(data):
                for t in range(tensor):
                    members = self._rank_of[row, :, t]
                    groups[direction, row, t] = self._group(f"pp{row}.tp{t}.{name}", members, "pp")
        table = self._rows(pairs.row, RecordKind.COLLECTIVE)
        table[:, _COLUMN["code"]] = np.where(pairs.send, Op.SEND, Op.RECV)
        where = trace.dp_rank[pairs.row], self._tensor_rank[pairs.row]
        table[:, _COLUMN["group"]] = groups[pairs.direction, where[0], where[1]]
        table[:, _COLUMN["peer"]] = np.where(pairs.send, pairs.destination, pairs.source)
        steps = np.searchsorted(distinct(trace.step), trace.step[pairs.row])
        table[:, _COLUMN["seq"]] = steps * (int(pairs.ordinal.max(initial=0)) + 1) + pairs.ordinal
        self._join(pairs.row, table)
        assert FORWARD == 0, "groups are made forward first"
        return trace.rank[pairs.row], table

    def _join(self, chosen: NDArray[np.intp], table: Int64Array) -> None:
        """Tell when the rank stood still: at once, or where the computation beside it ended."""
        trace = self._trace
        work = np.flatnonzero(trace.is_a(*_COMPUTE))
        span = int(trace.end_ns.max() + self._shift_ns.max()) + 1
        at = (trace.start_ns + self._shift_ns) + trace.rank * span
        order = np.argsort(at[work], kind="stable")
        work = work[order]
        begin, end = at[work], at[work] + (trace.end_ns - trace.start_ns)[work]
        mine = at[chosen]
        ends = mine + (trace.end_ns - trace.start_ns)[chosen]
        before = np.searchsorted(begin, ends - OVERLAP_NS, side="left") - 1
        there = before >= 0
        before = np.maximum(before, 0)
        overlaps = there & (end[before] > mine + OVERLAP_NS) if len(work) else there
        joined = np.where(overlaps, end[before], mine) if len(work) else mine
        rank = trace.rank[chosen]
        table[:, _COLUMN["join_ns"]] = np.where(joined < ends, joined - rank * span, 0)
        table[:, _COLUMN["flags"]] = np.where(overlaps, int(Flag.ASYNC), 0)


def _grid(trace: TraceColumns, path: Path) -> tuple[Int64Array, Int64Array]:
    """Return the tensor-parallel rank of each operation, and (D, S, T) the rank of each place.

    Raises:
        InputError: a rank is in two places.
    """
    ranks, first = np.unique(trace.rank, return_index=True)
    data, stage = trace.dp_rank[first], trace.stage[first]
    of_row = np.searchsorted(ranks, trace.rank)
    wrong = (trace.dp_rank != data[of_row]) | (trace.stage != stage[of_row])
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InputError(
            f"{path}: rank {trace.rank[row]} is in stage {trace.stage[row]} of dp_rank "
            f"{trace.dp_rank[row]} and elsewhere; a rank has one place"
        )
    if (int(data.max()) + 1) * (int(stage.max()) + 1) > 4 * MAX_RANKS:
        raise InputError(f"{path}: dp_rank up to {data.max()} and stage up to {stage.max()}")
    order = np.lexsort((ranks, stage, data))
    data, stage, ranks = data[order], stage[order], ranks[order]
    new = np.append(True, (data[1:] != data[:-1]) | (stage[1:] != stage[:-1]))
    tensor = np.arange(len(ranks)) - np.maximum.accumulate(np.where(new, np.arange(len(ranks)), 0))
    cells = np.full((int(data.max()) + 1, int(stage.max()) + 1, int(tensor.max()) + 1), -1)
    cells[data, stage, tensor] = ranks
    by_rank = np.argsort(ranks)
    return tensor[by_rank][of_row], cells.astype(np.int64)


def _read_meta(path: Path) -> dict[str, str]:
    """Return what ``meta-NAME.yaml`` beside ``trace-NAME.parquet`` says; empty without it."""
    name = path.stem.removeprefix("trace-")
    beside = path.with_name(f"meta-{name}.yaml")
    try:
        lines = beside.read_text(encoding="utf-8", errors="replace")[:65536].splitlines()
    except OSError:
        return {}
    return {found[1]: found[2] for line in lines if (found := _META_LINE.match(line))}
