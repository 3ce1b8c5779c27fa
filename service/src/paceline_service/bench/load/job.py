"""The records of a made-up job, all ranks at once, with full random digits in every time.

Constant times would compress to nothing and make a collector look faster than it is. The ranks
of a node share a clock, nodes do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline.ranks import format_ranks
from paceline.vocabulary import Op, Phase, RecordKind
from paceline.wire.codec import ROW_FIELDS
from paceline.wire.frames import GroupDef
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.bench.load.shape import RANKS_PER_NODE, LoadShape

JITTER = 0.01
"""Of the compute between two collectives, one standard deviation."""
BUSY = 0.9
"""Share of a step that its collectives take; the rest is the room for a fault."""
TRANSFER_RATIO = 0.05
RELEASE_NOISE_NS = 40_000
CALL_NS = 4_000
_FIELD = {name: place for place, name in enumerate(ROW_FIELDS)}


class MadeUpJob:
    """Blocking all-reduces over all ranks, or over tensor-parallel groups and one over the rest."""

    def __init__(self, shape: LoadShape) -> None:
        self._shape = shape
        self._rng = np.random.default_rng(shape.seed)
        ranks = np.arange(shape.ranks)
        nodes = ranks // RANKS_PER_NODE
        offsets_ns = self._rng.integers(10**14, 10**15, size=int(nodes[-1]) + 1)
        self.offset_ns: Int64Array = offsets_ns[nodes]
        """What each rank's clock showed when the job began."""
        self._segment_ns = shape.step_s * 1e9 * BUSY / (shape.collectives + 3)
        self._step_ns = round(shape.step_s * 1e9)
        self._seq = [0, 0]
        """Of the data-parallel groups, and of the tensor-parallel ones."""

    def groups(self, rank: int) -> list[GroupDef]:
        """Return the definitions that the frames of ``rank`` carry."""
        size, tp = self._shape.ranks, self._shape.tensor_parallel
        dp = range(rank % tp, size, tp)
        found = [GroupDef(index=0, name=f"dp{rank % tp}", ranks=format_ranks(dp), backend="nccl")]
        if tp > 1:
            first = rank - rank % tp
            ranks = format_ranks(range(first, first + tp))
            found.append(GroupDef(index=1, name=f"tp{rank // tp}", ranks=ranks, backend="nccl"))
        return found

    def step(self, step: int) -> Int64Array:
        """Return the records of a step, (R ranks, N records, 12 fields of ``ROW_FIELDS``)."""
        rows = list(self._rows(step))
        return np.moveaxis(np.stack(rows), 2, 0)

    def _rows(self, step: int) -> Iterator[Int64Array]:
        shape = self._shape
        segment_ns = np.full(shape.ranks, self._segment_ns)
        fault = shape.fault
        if fault is not None and step >= fault.first_step:
            segment_ns[fault.rank] *= 1 + fault.percent / 100
        begin = np.full(shape.ranks, float(step * self._step_ns))
        now = self._compute(begin, segment_ns)
        yield self._row(step, RecordKind.PHASE, Phase.INPUT, begin, now)
        in_forward = shape.collectives // 2
        for phase, count in (
            (Phase.FORWARD, in_forward), (Phase.BACKWARD, shape.collectives - in_forward),
        ):  # fmt: skip
            since = now
            for place in range(count):
                arrival = self._compute(now, segment_ns)
                last = phase is Phase.BACKWARD and place == count - 1
                row, now = self._collective(step, arrival, whole=last or shape.tensor_parallel == 1)
                yield row
            yield self._row(step, RecordKind.PHASE, phase, since, now)
        since, now = now, self._compute(now, segment_ns)
        yield self._row(step, RecordKind.PHASE, Phase.OPTIMIZER, since, now)
        yield self._row(step, RecordKind.STEP, 0, begin, now)

    def _compute(self, since: FloatArray, segment_ns: FloatArray) -> FloatArray:
        jitter = 1 + JITTER * self._rng.standard_normal(self._shape.ranks)
        return since + segment_ns * np.maximum(jitter, 0.5)

    def _collective(
        self, step: int, arrival: FloatArray, *, whole: bool
    ) -> tuple[Int64Array, FloatArray]:
        """All ranks take part, each in its group, and wait for its last member."""
        size, tp = self._shape.ranks, self._shape.tensor_parallel
        grid = arrival.reshape(-1, tp)
        latest = grid.max(axis=0 if whole else 1, keepdims=True)
        transfer = self._segment_ns * TRANSFER_RATIO * self._rng.lognormal(0.0, 0.2, latest.shape)
        release = np.broadcast_to(latest + transfer, grid.shape).ravel()
        release = release + self._rng.random(size) * RELEASE_NOISE_NS
        row = self._row(step, RecordKind.COLLECTIVE, Op.ALL_REDUCE, arrival, release)
        place = 0 if whole else 1
        row[:, _FIELD["group"]] = place
        row[:, _FIELD["seq"]] = self._seq[place]
        self._seq[place] += 1
        row[:, _FIELD["payload_bytes"]] = 1 << 24
        start_ns = row[:, _FIELD["start_ns"]]
        row[:, _FIELD["join_ns"]] = start_ns + self._rng.integers(600, CALL_NS, size)
        row[:, _FIELD["issue_ns"]] = start_ns
        return row.T, release

    def _row(
        self, step: int, kind: RecordKind, code: int, start: FloatArray, end: FloatArray
    ) -> Int64Array:
        row = np.zeros((self._shape.ranks, len(ROW_FIELDS)), dtype=np.int64)
        row[:, _FIELD["kind"]] = kind
        row[:, _FIELD["code"]] = code
        row[:, _FIELD["step"]] = step
        row[:, _FIELD["peer"]] = -1
        row[:, _FIELD["start_ns"]] = start.astype(np.int64) + self.offset_ns
        row[:, _FIELD["end_ns"]] = end.astype(np.int64) + self.offset_ns
        return row if kind is RecordKind.COLLECTIVE else row.T
