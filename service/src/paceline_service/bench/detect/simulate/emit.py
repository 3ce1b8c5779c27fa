"""Collects what the hooks of every rank would have recorded, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import Flag, Op, Phase, RecordKind

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
CONSTANTS = ("kind", "code", "step", "payload_bytes", "flags")
BY_ROW = ("rank", "group", "seq", "peer")
TIMES = ("start_ns", "end_ns", "join_ns", "issue_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """The clock of every rank: what it shows is ``true * (1 + drift) + offset``.

    Attributes:
        offset_ns: (R,) int64.
        drift: (R,) relative rate.
        domain: (R,) number of the clock.
    """

    offset_ns: IntArray
    drift: FloatArray
    domain: IntArray

    def show(self, ranks: IntArray, true_ns: FloatArray) -> IntArray:
        """Return what the clocks of ``ranks`` show; 0, which is unknown, stays 0."""
        shown = (true_ns + true_ns * self.drift[ranks]).astype(np.int64) + self.offset_ns[ranks]
        return np.where(true_ns > 0, shown, 0)


class Emitter:
    """Takes records of many ranks at a time, hands out the columns of the steps since.

    Args:
        clocks: of the ranks.
        enabled: whether records are wanted; without them only the times of the job are.
    """

    def __init__(self, clocks: Clocks, *, enabled: bool) -> None:
        self.enabled = enabled
        self._clocks = clocks
        self._constants: list[tuple[int, int, int, int, int]] = []
        self._counts: list[int] = []
        self._rows: list[tuple[IntArray, ...]] = []
        self._times: list[tuple[FloatArray, ...]] = []

    def span(
        self, kind: RecordKind, code: int, step: int, ranks: IntArray, start: FloatArray,
        end: FloatArray,
    ) -> None:  # fmt: skip
        """Take a phase or a step of each of ``ranks``; true ns."""
        if not self.enabled:
            return
        none = np.zeros(len(ranks), dtype=np.int64)
        self._constants.append((kind, code, step, 0, 0))
        self._counts.append(len(ranks))
        self._rows.append((ranks, none, none, none - 1))
        self._times.append((start, end, np.zeros(len(ranks)), start))

    def phase(
        self, phase: Phase, step: int, ranks: IntArray, start: FloatArray, end: FloatArray
    ) -> None:
        """Take a phase."""
        self.span(RecordKind.PHASE, int(phase), step, ranks, start, end)

    def collective(
        self, op: Op, step: int, ranks: IntArray, group: IntArray, seq: IntArray, *,
        start: FloatArray, end: FloatArray, join: FloatArray | None, payload_bytes: int,
        flags: Flag, peer: IntArray | None = None,
    ) -> None:  # fmt: skip
        """Take one operation; arrays of any one shape, true ns; no ``join`` is nobody waited."""
        if not self.enabled:
            return
        ranks = ranks.ravel()
        self._constants.append((RecordKind.COLLECTIVE, op, step, payload_bytes, flags))
        self._counts.append(len(ranks))
        partner = np.full(len(ranks), -1, dtype=np.int64) if peer is None else peer.ravel()
        self._rows.append((ranks, group.ravel(), seq.ravel(), partner))
        stop = np.zeros(len(ranks)) if join is None else join.ravel()
        begin = start.ravel()
        self._times.append((begin, end.ravel(), stop, begin))

    def take(self) -> dict[str, IntArray]:
        """Return the columns since the last call, those of a rank together and in order."""
        counts = np.array(self._counts, dtype=np.int64)
        columns: dict[str, IntArray] = {}
        constants = np.array(self._constants, dtype=np.int64).reshape(-1, len(CONSTANTS))
        for place, name in enumerate(CONSTANTS):
            columns[name] = np.repeat(constants[:, place], counts)
        for place, name in enumerate(BY_ROW):
            columns[name] = _joined([row[place] for row in self._rows])
        for place, name in enumerate(TIMES):
            parts = [times[place] for times in self._times]
            true_ns = np.concatenate(parts) if parts else np.zeros(0)
            columns[name] = self._clocks.show(columns["rank"], true_ns)
        for kept in (self._constants, self._counts, self._rows, self._times):
            kept.clear()
        order = np.argsort(columns["rank"], kind="stable")
        return {name: column[order] for name, column in columns.items()}


def _joined(parts: list[IntArray]) -> IntArray:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
