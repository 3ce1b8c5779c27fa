"""Simple rules on the same records, for comparison; they see the second half of a job."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import P2P_OPS, Phase, RecordKind
from paceline_service.bench.detect.peer_rules import nvrx_stragglers
from paceline_service.bench.detect.simulate.layout import IntArray
from paceline_service.bench.detect.simulate.spec import Chunk, FloatArray

SLOWER = 1.10
"""The z-score rule flags from 10 % on, as Greyhound does."""
LEAST_Z = 3.0
SECTIONS = (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
NVRX = "NVRx sections"
RULES = ("longest duration", "last arriver", "z-score at 10 %", NVRX)


class Baselines:
    """Collects what the rules need.

    Args:
        ranks: R.
        from_step: what is before is not looked at.
    """

    def __init__(self, ranks: int, from_step: int) -> None:
        self._from_step = from_step
        self._duration_ns = np.zeros(ranks)
        self._last = np.zeros(ranks, dtype=np.int64)
        self._sections: list[FloatArray] = []

    def add(self, chunk: Chunk) -> None:
        """Take the records of some steps."""
        columns = chunk.columns
        rank, kind, code = columns["rank"], columns["kind"], columns["code"]
        late = columns["step"] >= self._from_step
        collective = (
            late & (kind == RecordKind.COLLECTIVE) & ~np.isin(code, [int(op) for op in P2P_OPS])
        )
        self._collectives(columns, np.flatnonzero(collective))
        phases = np.flatnonzero(late & (kind == RecordKind.PHASE) & np.isin(code, SECTIONS))
        if not len(phases):
            return
        step = columns["step"][phases] - columns["step"][phases].min()
        table = np.zeros((int(step.max()) + 1, len(self._last), max(SECTIONS) + 1))
        length = columns["end_ns"][phases] - columns["start_ns"][phases]
        np.add.at(table, (step, rank[phases], code[phases]), length)
        self._sections.append(table[:, :, list(SECTIONS)])

    def named(self) -> dict[str, list[int] | None]:
        """Return whom each rule names; None where it could not be asked."""
        if not self._sections:
            return dict.fromkeys(RULES)
        sections = np.concatenate(self._sections)
        counted = bool(self._last.any())
        return {
            "longest duration": [int(np.argmax(self._duration_ns))] if counted else [],
            "last arriver": [int(np.argmax(self._last))] if counted else [],
            "z-score at 10 %": _z_scores(sections),
            NVRX: nvrx_stragglers(sections),
        }

    def _collectives(self, columns: dict[str, IntArray], rows: IntArray) -> None:
        if not len(rows):
            return
        duration = (columns["end_ns"] - columns["start_ns"])[rows]
        rank, group, seq = (columns[name][rows] for name in ("rank", "group", "seq"))
        np.add.at(self._duration_ns, rank, duration)
        order = np.lexsort((duration, seq, group))
        group, seq = group[order], seq[order]
        first = np.append(True, (group[1:] != group[:-1]) | (seq[1:] != seq[:-1]))
        np.add.at(self._last, rank[order][first], 1)


def _z_scores(sections: FloatArray) -> list[int]:
    """Flag ranks whose mean of any section is 10 % above the mean of all, and 3 sd of ranks."""
    means = sections.mean(axis=0)
    everyone = means.mean(axis=0)
    sd = np.maximum(means.std(axis=0), 1e-9)
    slow = (means > SLOWER * everyone) & ((means - everyone) / sd > LEAST_Z)
    return [int(rank) for rank in np.flatnonzero(slow.any(axis=1))]
