"""Steps as the API and the store hold them: per-rank arrays, packed small, and as columns.

``ranks_blob`` of the table ``step_summaries`` is one version byte, the number of ranks R as
4 bytes (little endian), then zlib over the byte-shuffled int64 array (10, R): self, wait,
communication, and self time in the phases host, input, forward, backward, optimizer, copy,
checkpoint; ns, -1 where a rank has no data. Version 1 knew the first five phases.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from paceline.vocabulary import EXCLUSIVE_PHASES, phase_name
from paceline_service.analysis.records import Int64Array

PHASE_NAMES = [phase_name(phase) for phase in EXCLUSIVE_PHASES]
_HEAD = struct.Struct("<BI")
_VERSION = 2
_ROWS = 3 + len(EXCLUSIVE_PHASES)
_ROWS_OF_VERSION = {1: 8, _VERSION: _ROWS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step over all R ranks; ``per_rank`` is (10, R) as in ``ranks_blob``."""

    step: int
    start_wall_ns: int
    duration_ns: int
    slowest_rank: int
    per_rank: Int64Array

    @property
    def wait_total_ns(self) -> int:
        """Wait of all ranks together."""
        wait_ns = self.per_rank[1]
        return int(wait_ns[wait_ns > 0].sum())


def stack_per_rank(
    self_ns: Int64Array, wait_ns: Int64Array, comm_ns: Int64Array, phase_self_ns: Int64Array
) -> Int64Array:
    """Return the arrays (R,) and (R, 7) of a step as one (10, R)."""
    return np.concatenate([np.stack([self_ns, wait_ns, comm_ns]), phase_self_ns.T])


def pack_ranks(per_rank: Int64Array) -> bytes:
    """Return (10, R) as ``ranks_blob``."""
    plain = np.ascontiguousarray(per_rank.astype("<i8"))
    shuffled = np.ascontiguousarray(plain.view(np.uint8).reshape(-1, 8).T).tobytes()
    return _HEAD.pack(_VERSION, per_rank.shape[1]) + zlib.compress(shuffled, 1)


def unpack_ranks(blob: bytes) -> Int64Array:
    """Return what ``pack_ranks`` packed."""
    version, ranks = _HEAD.unpack_from(blob)
    assert version in _ROWS_OF_VERSION, f"ranks_blob of version {version} in the database"
    shuffled = np.frombuffer(zlib.decompress(blob[_HEAD.size :]), dtype=np.uint8)
    plain = np.ascontiguousarray(shuffled.reshape(8, -1).T)
    known = plain.view("<i8").reshape(_ROWS_OF_VERSION[version], ranks).astype(np.int64)
    unknown = np.where(known[:1] < 0, -1, 0).repeat(_ROWS - len(known), axis=0)
    return np.concatenate([known, unknown])


class RecentSteps:
    """The newest steps of one attempt, bounded in memory; written by one thread, read by others."""

    def __init__(self, limit: int) -> None:
        self._steps: deque[Step] = deque(maxlen=limit)
        self._lock = threading.Lock()

    def extend(self, steps: Iterable[Step]) -> None:
        """Add newer steps."""
        with self._lock:
            self._steps.extend(steps)

    @property
    def bounds(self) -> tuple[int, int] | None:
        """The first and the last step held, or None."""
        with self._lock:
            return (self._steps[0].step, self._steps[-1].step) if self._steps else None

    def between(self, first: int, last: int) -> list[Step]:
        """Return the steps from ``first`` to ``last``, both included."""
        with self._lock:
            return [step for step in self._steps if first <= step.step <= last]

    def newest(self, count: int, after: int = -1) -> list[Step]:
        """Return up to ``count`` of the newest steps, in order, all later than ``after``."""
        with self._lock:
            tail = list(islice(reversed(self._steps), count))
        return [step for step in reversed(tail) if step.step > after]


def columns(
    job: str, attempt: int, steps: Sequence[Step], ranks: Sequence[int], *, phases: bool
) -> dict[str, Any]:
    """Return steps as the API's columnar object, for the given ranks."""
    index = np.array(ranks, dtype=np.intp)
    chosen = [step.per_rank[:, index] for step in steps]
    out: dict[str, Any] = {
        "job": job,
        "attempt": attempt,
        "ranks": list(ranks),
        "phases": PHASE_NAMES,
        "steps": [step.step for step in steps],
        "start_wall_ns": [
            step.start_wall_ns if step.start_wall_ns >= 0 else None for step in steps
        ],
        "duration_ns": [step.duration_ns for step in steps],
        "slowest_rank": [step.slowest_rank if step.slowest_rank >= 0 else None for step in steps],
        "self_ns": [_nullable(per_rank[0]) for per_rank in chosen],
        "wait_ns": [_nullable(per_rank[1]) for per_rank in chosen],
        "comm_ns": [_nullable(per_rank[2]) for per_rank in chosen],
    }
    if phases:
        out["phase_self_ns"] = [
            [_nullable(of_rank) for of_rank in per_rank[3:].T] for per_rank in chosen
        ]
    return out


def _nullable(values: Int64Array) -> list[int | None]:
    plain: list[int | None] = values.tolist()
    if (values < 0).any():
        return [None if value is None or value < 0 else value for value in plain]
    return plain
