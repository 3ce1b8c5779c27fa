"""Judged steps made of self times alone, for what looks at nothing else of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline_service.analysis.blame.timeline import PHASES, StepRow
from paceline_service.analysis.channel import JudgedStep
from paceline_service.analysis.records import Int64Array


def judged_step(
    step: int, self_ns: Sequence[int], peer_groups: list[Int64Array] | None = None
) -> JudgedStep:
    """Return a step in which every rank worked ``self_ns``; -1 is a rank without data."""
    own = np.array(self_ns, dtype=np.int64)
    nothing = np.where(own < 0, -1, 0)
    row = StepRow(
        step=step,
        start_ns=nothing,
        duration_ns=int(own.max()),
        self_ns=own,
        wait_ns=nothing,
        comm_ns=nothing,
        phase_self_ns=np.zeros((len(own), PHASES), dtype=np.int64),
        slowest_rank=int(own.argmax()),
    )
    everyone = [np.arange(len(own))] if peer_groups is None else peer_groups
    unused: dict[str, object] = dict.fromkeys(("table", "matches", "waits", "blame", "note"))
    return JudgedStep(row=row, peer_groups=everyone, **unused)  # type: ignore[arg-type]
