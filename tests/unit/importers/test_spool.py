from __future__ import annotations

import numpy as np

from paceline_service.importers import spool as spool_module
from paceline_service.importers.spool import ROWS_PER_CHUNK, WIDTH, RowSpool


def row(step: int) -> tuple[int, ...]:
    return (1, 1, 0, step, step, *range(WIDTH - 5))


def test_rows_come_back_by_rank_in_order_however_they_were_mixed() -> None:
    spool = RowSpool()
    for step in range(3 * ROWS_PER_CHUNK // 2):
        spool.append(step % 2, row(step))
    spool.flush()
    assert spool.ranks == [0, 1]
    odd = np.concatenate(list(spool.tables(1)))
    assert odd[:, 3].tolist() == list(range(1, 3 * ROWS_PER_CHUNK // 2, 2))
    spool.close()


def test_many_ranks_share_one_bounded_buffer(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(spool_module, "MAX_BUFFERED_ROWS", 100)
    spool = RowSpool()
    for step in range(5):
        for rank in range(60):
            spool.append(rank, row(step))
    assert sum(chunk.rows for rank in range(60) for chunk in spool.chunks(rank)) >= 200
    spool.flush()
    assert all(sum(c.rows for c in spool.chunks(rank)) == 5 for rank in range(60))
    spool.close()


def test_the_rows_of_a_rank_can_be_replaced() -> None:
    spool = RowSpool()
    for step in range(10):
        spool.append(0, row(step))
    spool.flush()
    table = np.concatenate(list(spool.tables(0)))
    spool.replace(0, table[::-1])
    assert np.concatenate(list(spool.tables(0)))[:, 3].tolist() == list(range(9, -1, -1))
    spool.close()
