"""Steps that are kept on disk come back as they were, and so do the batches made of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from paceline_service.analysis.blame.timeline import PHASES, StepRow
from paceline_service.export.run_figures import run_figures
from paceline_service.export.step_archive import StepArchive


def row(step: int, ranks: int = 3, *, silent: int = -1) -> StepRow:
    own = np.arange(ranks, dtype=np.int64) + 100 * step
    own[own == -1] = 0
    rest = np.full(ranks, 7, dtype=np.int64)
    phases = np.zeros((ranks, PHASES), dtype=np.int64)
    phases[:, 2] = own
    if silent >= 0:
        own[silent] = rest[silent] = -1
        phases[silent] = -1
    return StepRow(
        step=step, start_ns=own * 0, duration_ns=1000 + step, self_ns=own, wait_ns=rest,
        comm_ns=rest, phase_self_ns=phases, slowest_rank=2,
    )  # fmt: skip


@pytest.fixture
def archive() -> Iterator[StepArchive]:
    """Steps 10, 20, ... 100, in the third of which rank 1 is silent."""
    kept = StepArchive()
    kept.add(row(step, silent=1 if step == 30 else -1) for step in range(10, 60, 10))
    kept.add(row(step) for step in range(60, 110, 10))
    yield kept
    kept.close()


@pytest.fixture
def empty() -> Iterator[StepArchive]:
    kept = StepArchive()
    yield kept
    kept.close()


def test_steps_come_back_from_a_step_on_or_the_newest(archive: StepArchive) -> None:
    newest = archive.table(limit=3)
    assert newest is not None
    assert newest.steps == (80, 90, 100)
    found = archive.table(limit=2, first=25, ranks=(0, 1), phases=True)
    assert found is not None
    assert found.steps == (30, 40)
    assert found.self_ns[1].tolist() == [4000, 4001]
    assert np.isnan(found.self_ns[0, 1])
    assert found.phase_ns is not None
    assert found.phase_ns.shape == (2, 2, PHASES)
    assert found.phase_ns[1, 1, 2] == 4001
    assert archive.table(limit=5, first=101) is None


def test_reading_in_between_does_not_harm_what_comes_later(archive: StepArchive) -> None:
    next(archive.per_rank(0, 1))
    archive.add([row(110)])
    found = archive.table(limit=2)
    assert found is not None
    assert found.self_ns[:, 0].tolist() == [10_000, 11_000]


def test_the_history_has_every_step_and_no_ranks(archive: StepArchive) -> None:
    history = archive.history()
    assert history is not None
    assert history.duration_ns.tolist() == [1000 + step for step in range(10, 110, 10)]
    assert history.ranks == ()
    assert archive.steps_of_rank.tolist() == [10, 9, 10]


def test_nothing_is_no_table(empty: StepArchive) -> None:
    assert empty.history() is None
    assert empty.table(limit=3) is None
    assert len(run_figures(empty, 5).duration_ns) == 0


def test_steps_of_which_only_the_times_are_known_do_not_count_as_idle(
    archive: StepArchive, empty: StepArchive
) -> None:
    unknown = np.full(3, -1, dtype=np.int64)
    for step in range(40):
        one = row(step + 1)
        if step % 5:
            one = replace(
                one, self_ns=unknown, wait_ns=unknown, comm_ns=unknown,
                phase_self_ns=np.full((3, PHASES), -1, dtype=np.int64),
            )  # fmt: skip
        empty.add([one])
    found = run_figures(empty, 0)
    assert (len(found.duration_ns), found.steps) == (10, 40)
    known = ~np.isnan(found.part_ns).any(axis=1)
    assert 0 < known.sum() <= 8
    assert (found.part_ns[known].sum(axis=1) > 100).all()


def test_batches_leave_out_what_settles_but_not_more_than_half(archive: StepArchive) -> None:
    assert run_figures(archive, 2).steps == 8
    few = run_figures(archive, 100)
    assert few.steps == 4
    assert few.self_ns[:, 0].tolist() == [7000, 8000, 9000, 10_000]
    assert few.part_ns.sum(axis=1).tolist() == [7001 + 14, 8001 + 14, 9001 + 14, 10_001 + 14]
