"""S, M_W and M_S by the published model, where a pencil gives them too."""

from __future__ import annotations

import numpy as np
import pytest

from paceline_service.importers.whatif_columns import TraceColumns
from paceline_service.importers.whatif_published import published_figures

CLOSING = ("gc", "layernorm-grads-all-reduce", "embedding-grads-all-reduce",
           "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer")  # fmt: skip
REST_S = 0.01 * len(CLOSING)
Row = tuple[int, int, int, str, int, float, float]
"""Data-parallel row, stage, step, type, number, start, end."""


def columns(rows: list[Row], stages: int) -> TraceColumns:
    names = tuple(sorted({row[3] for row in rows}))
    data, stage, step, _, seq, start, end = (np.array(c) for c in zip(*rows, strict=True))
    return TraceColumns(
        rank=data * stages + stage, dp_rank=data, stage=stage, step=step, seq_id=seq,
        optype=np.array([names.index(row[3]) for row in rows]), chunk=stage,
        start_ns=np.rint(start.astype(float) * 1e9).astype(np.int64),
        end_ns=np.rint(end.astype(float) * 1e9).astype(np.int64), names=names,
    )  # fmt: skip


def replicas(forward_s: list[float], *, without: str = "") -> list[Row]:
    """Rows without a pipeline, that wait for each other at the end of each of two steps."""
    rows: list[Row] = []
    for step in (3, 4):
        at_once = max(forward_s) + 0.5 + 2 * 0.01
        for data, length in enumerate(forward_s):
            rows.append((data, 0, step, "params-all-gather", 0, 0.0, 0.0))
            rows.append((data, 0, step, "forward-compute", 0, 0.0, length))
            rows.append((data, 0, step, "backward-compute", 0, length, length + 0.5))
            at = length + 0.5
            for number, kind in enumerate(CLOSING):
                # The scatter waits for the slowest row.
                end = at + 0.01 if number != 3 else at_once + 0.02
                rows.append((data, 0, step, kind, 0, at, end))
                at = end
    return [row for row in rows if row[3] != without]


def test_of_replicas_the_slow_one_takes_the_whole_loss() -> None:
    figures = published_figures(columns(replicas([1.0, 2.0]), stages=1))
    assert figures is not None
    assert figures.slowdown == pytest.approx((2.5 + REST_S) / (2.0 + REST_S), rel=1e-6)
    assert figures.m_w == pytest.approx(1.0, abs=1e-6)


def test_equal_replicas_lose_nothing() -> None:
    figures = published_figures(columns(replicas([1.0, 1.0, 1.0]), stages=1))
    assert figures is not None
    assert figures.slowdown == pytest.approx(1.0, abs=1e-9)
    assert figures.m_w is None or abs(figures.m_w) < 1


@pytest.mark.parametrize("kind", ["gc", "backward-compute", "optimizer", "forward-compute"])
def test_a_step_that_lacks_an_operation_has_no_such_figures(kind: str) -> None:
    assert published_figures(columns(replicas([1.0, 2.0], without=kind), stages=1)) is None


def test_an_operation_that_one_row_lacks_is_no_zero() -> None:
    rows = replicas([1.0, 2.0])
    lost = [row for row in rows if row[:4] != (1, 0, 4, "gc")]
    assert len(lost) == len(rows) - 1
    assert published_figures(columns(lost, stages=1)) is None


def test_a_trace_without_the_first_row_has_no_such_figures() -> None:
    rows = [row for row in replicas([1.0, 2.0]) if row[0] == 1]
    assert published_figures(columns(rows, stages=1)) is None
