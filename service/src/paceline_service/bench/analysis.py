"""Records per second through the analysis on one core, and whether its memory stays bounded."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from paceline.vocabulary import Flag, Op, Phase, RecordKind
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import COLUMNS, FloatArray, Group, Int64Array, Records
from paceline_service.bench.machine import memory_kib

SEGMENT_NS = 8_000_000
"""Compute between two collectives, so that 100 of them make a step of about a second."""
JITTER = 0.01
TRANSFER_NS = 300_000
BUCKETS = 10
RANKS_PER_NODE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShape:
    """A job whose ranks all issue ``collectives`` collectives a step.

    With ``tensor_parallel`` above 1 all but ``BUCKETS`` of them are blocking all-reduces within
    groups of so many ranks; the buckets, and everything in a job without tensor parallelism, are
    reduced over the ranks that hold the same shard.
    """

    ranks: int
    tensor_parallel: int
    collectives: int
    steps: int


SHAPES = {
    "DP x TP 8": JobShape(ranks=10_000, tensor_parallel=8, collectives=100, steps=3),
    "DP only": JobShape(ranks=10_000, tensor_parallel=1, collectives=100, steps=3),
}
QUICK_SHAPES = {
    "DP x TP 8": JobShape(ranks=1_024, tensor_parallel=8, collectives=100, steps=3),
    "DP only": JobShape(ranks=1_024, tensor_parallel=1, collectives=100, steps=3),
}
MEMORY_TIMES = 4
"""Memory is read after N steps and after this many times N."""


def measure(*, quick: bool) -> dict[str, object]:
    """Return the figures of every shape."""
    return {name: _measure(shape) for name, shape in (QUICK_SHAPES if quick else SHAPES).items()}


def _measure(shape: JobShape) -> dict[str, object]:
    job = SimulatedJob(shape, seed=1)
    analysis = JobAnalysis(shape.ranks)
    for group in job.groups:
        analysis.declare_group(group)
    for rank in range(shape.ranks):
        node = f"node-{rank // RANKS_PER_NODE}"
        analysis.declare_rank(rank, node=node, clock_domain=node)
    records, spent_s, peak_kib = 0, 0.0, []
    for step in range(shape.steps * MEMORY_TIMES):
        written = job.step(step)
        records += sum(map(len, written))
        began_s = time.process_time()
        for part in written:
            analysis.add(part)
        analysis.advance()
        spent_s += time.process_time() - began_s
        del written
        gc.collect()
        peak_kib.append(memory_kib()["rss"])
    began_s = time.process_time()
    analysis.finish()
    spent_s += time.process_time() - began_s
    began_s = time.process_time()
    report = analysis.report()
    report_s = time.process_time() - began_s
    return {
        "shape": asdict(shape),
        "records": records,
        "records_per_s": round(records / spent_s),
        "step_s": round(spent_s / (shape.steps * MEMORY_TIMES), 3),
        "report_s": round(report_s, 3),
        "steps_analysed": report.steps,
        "rss_mib": [
            round(max(peak_kib[: shape.steps * times]) / 1024) for times in (1, MEMORY_TIMES)
        ],
    }


class SimulatedJob:
    """Writes what the ranks of a healthy job would record, all ranks at once.

    The ranks of a node share a clock, nodes do not.
    """

    def __init__(self, shape: JobShape, seed: int) -> None:
        self._shape = shape
        self._rng = np.random.default_rng(seed)
        size, tp = shape.ranks, shape.tensor_parallel
        self.groups = [Group(name=f"dp{t}", ranks=tuple(range(t, size, tp))) for t in range(tp)]
        if tp > 1:
            self.groups += [
                Group(name=f"tp{d}", ranks=tuple(range(d * tp, (d + 1) * tp)))
                for d in range(size // tp)
            ]
        ranks = np.arange(size)
        self._dp, self._tp = ranks % tp, tp + ranks // tp
        nodes = ranks // RANKS_PER_NODE
        self._offset_ns = self._rng.integers(10**15, 10**16, size=int(nodes[-1]) + 1)[nodes]
        self._now_ns = np.zeros(size)
        self._seq = {"dp": 0, "tp": 0}

    def step(self, step: int) -> list[Records]:
        """Return the records of every rank for the next step."""
        size, count = self._shape.ranks, self._shape.collectives
        rows = list(self._collectives(step, count))
        table = np.stack([np.broadcast_to(row, (len(COLUMNS), size)) for row in rows], axis=1)
        return [
            Records(rank=rank, **dict(zip(COLUMNS, np.ascontiguousarray(part), strict=True)))
            for rank, part in enumerate(np.moveaxis(table, 2, 0))
        ]

    def _collectives(self, step: int, count: int) -> Iterator[Int64Array]:
        begin = self._now_ns.copy()
        blocking = count - BUCKETS if self._shape.tensor_parallel > 1 else 0
        self._compute()
        yield self._row(RecordKind.PHASE, Phase.INPUT, step, begin, self._now_ns)
        phases = ((Phase.FORWARD, blocking // 2, 0), (Phase.BACKWARD, blocking - blocking // 2,
                                                      count - blocking))  # fmt: skip
        for phase, layers, buckets in phases:
            since = self._now_ns.copy()
            for _ in range(layers):
                self._compute()
                yield self._collective(step, "tp")
            for bucket in range(buckets):
                self._compute()
                yield self._collective(step, "dp", last=bucket == buckets - 1)
            yield self._row(RecordKind.PHASE, phase, step, since, self._now_ns)
        since = self._now_ns.copy()
        self._compute()
        yield self._row(RecordKind.PHASE, Phase.OPTIMIZER, step, since, self._now_ns)
        yield self._row(RecordKind.STEP, 0, step, begin, self._now_ns)

    def _compute(self) -> None:
        jitter = 1 + JITTER * self._rng.standard_normal(self._shape.ranks)
        self._now_ns += SEGMENT_NS * np.maximum(jitter, 0.5)

    def _collective(self, step: int, kind: str, *, last: bool = True) -> Int64Array:
        """All ranks take part, each in its group; with ``last`` they wait for its release."""
        shape = (-1, self._shape.tensor_parallel)
        arrival = self._now_ns.copy()
        axis = 1 if kind == "tp" else 0
        latest = np.broadcast_to(
            arrival.reshape(shape).max(axis=axis, keepdims=True), arrival.reshape(shape).shape
        ).ravel()
        release = latest + TRANSFER_NS
        if last:
            self._now_ns = release.copy()
        row = self._row(RecordKind.COLLECTIVE, Op.ALL_REDUCE, step, arrival, release)
        row[COLUMNS.index("group")] = self._tp if kind == "tp" else self._dp
        row[COLUMNS.index("seq")] = self._seq[kind]
        row[COLUMNS.index("payload_bytes")] = 1 << 24
        row[COLUMNS.index("join_ns")] = row[COLUMNS.index("start_ns")] if last else 0
        row[COLUMNS.index("flags")] = 0 if last else int(Flag.ASYNC)
        self._seq[kind] += 1
        return row

    def _row(
        self, kind: RecordKind, code: int, step: int, start_ns: FloatArray, end_ns: FloatArray
    ) -> Int64Array:
        row = np.zeros((len(COLUMNS), self._shape.ranks), dtype=np.int64)
        row[COLUMNS.index("kind")] = kind
        row[COLUMNS.index("code")] = code
        row[COLUMNS.index("step")] = step
        row[COLUMNS.index("peer")] = -1
        row[COLUMNS.index("start_ns")] = start_ns.astype(np.int64) + self._offset_ns
        row[COLUMNS.index("end_ns")] = end_ns.astype(np.int64) + self._offset_ns
        row[COLUMNS.index("issue_ns")] = row[COLUMNS.index("start_ns")]
        return row
