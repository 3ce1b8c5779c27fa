"""Jobs as `paceline top` and the HTML report see them, of any size."""

from __future__ import annotations

from typing import Any

import numpy as np

from paceline_service.export.step_table import StepTable
from paceline_service.top.moment import Moment
from tests.unit.export.reports import finding, report

MS = 1e6


def table(
    ranks: int, *, steps: int = 40, slow: tuple[int, ...] = (), step_ms: float = 100.0
) -> StepTable:
    """Return steps whose ``slow`` ranks take a quarter longer."""
    random = np.random.default_rng(3)
    self_ns = random.normal(step_ms, step_ms / 100, (steps, ranks)) * MS
    self_ns[:, list(slow)] *= 1.25
    comm_ns = np.full((steps, ranks), step_ms * MS / 10)
    longest = self_ns.max(axis=1)
    return StepTable(
        ranks=tuple(range(ranks)),
        steps=tuple(range(steps)),
        duration_ns=longest + comm_ns[:, 0],
        slowest_rank=tuple(int(rank) for rank in self_ns.argmax(axis=1)),
        self_ns=self_ns,
        wait_ns=longest[:, None] - self_ns,
        comm_ns=comm_ns,
        start_wall_ns=(-1,) * steps,
    )


def nodes(ranks: int) -> dict[str, str]:
    return {str(rank): f"node-{rank // 8}" for rank in range(ranks)}


def moment(ranks: int, *, slow: tuple[int, ...] = (2,), **changes: Any) -> Moment:
    """Return a running job of that size, whose ranks ``slow`` a finding names."""
    told = report(ranks=ranks, findings=[finding(ranks=list(slow))])
    told["job"] |= {"name": "llm", "attempt": 1, "state": "running"}
    values: dict[str, Any] = {
        "url": "http://127.0.0.1:8750", "job": "llm", "attempt": 1, "report": told,
        "detail": {"nodes": nodes(ranks)}, "table": table(ranks, slow=slow),
    }  # fmt: skip
    return Moment(**(values | changes))
