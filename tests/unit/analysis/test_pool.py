"""Which steps are handed out, and that what is held stays bounded."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import RecordKind
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.matching.pool import StepPool
from paceline_service.analysis.records import Records, records_from_rows

S = 1_000_000_000


def steps(rank: int, numbers: range, took_s: float = 1.0, clock_s: int = 0) -> Records:
    begin = [int((clock_s + n * took_s) * S) for n in numbers]
    took = int(took_s * S)
    rows = [
        (RecordKind.STEP, 0, 0, 0, number, -1, 0, start, start + took, 0, 0, 0)
        for number, start in zip(numbers, begin, strict=True)
    ]
    return records_from_rows(rank, rows)


def pool(ranks: int = 2, *, patience_s: float = 30.0, patience_rows: int = 1000) -> StepPool:
    return StepPool(ranks, grace_steps=1, patience_s=patience_s, patience_rows=patience_rows)


def handed_out(one: StepPool) -> list[int]:
    return [step for step, _ in one.complete()]


@pytest.mark.parametrize(("took_s", "waited_for"), [(1.0, 28), (0.01, 500), (60.0, 1)])
def test_a_rank_is_waited_for_by_time_and_not_by_steps(took_s: float, waited_for: int) -> None:
    held = pool(patience_rows=10_000)
    held.add(steps(0, range(5), took_s))
    held.add(steps(1, range(5), took_s))
    assert handed_out(held) == [0, 1, 2, 3]
    held.add(steps(0, range(5, 5 + waited_for), took_s))
    assert handed_out(held) == []
    held.add(steps(0, range(5 + waited_for, 5 + waited_for + max(int(40 / took_s), 2)), took_s))
    assert handed_out(held)[0] == 4
    assert handed_out(held) == []


def test_clocks_of_different_ranks_are_never_compared_to_find_who_lags() -> None:
    held = pool()
    held.add(steps(0, range(5), clock_s=0))
    held.add(steps(1, range(5), clock_s=900_000))
    assert handed_out(held) == [0, 1, 2, 3]


def test_a_rank_that_never_ends_a_step_delays_the_others_once_and_no_more() -> None:
    held = pool()
    held.add(steps(0, range(40)))
    assert handed_out(held)[:3] == [0, 1, 2]
    held.add(steps(0, range(40, 42)))
    assert handed_out(held)[-1] == 40
    held.add(steps(1, range(42, 43)))
    held.add(steps(0, range(42, 45)))
    assert handed_out(held) == [41]


def test_rows_of_a_job_that_ends_no_step_are_let_go_and_counted() -> None:
    held = pool(patience_rows=100)
    phase = (RecordKind.PHASE, 2, 0, 0, 0, -1, 0, 1, 2, 0, 0, 0)
    for _ in range(50):
        held.add(records_from_rows(0, [phase] * 30))
        assert handed_out(held) == []
        assert held._held_rows <= 130
    assert held.dropped()["no_step"] >= 1000


def test_nobody_is_waited_for_when_too_many_rows_are_held() -> None:
    held = pool(patience_rows=20)
    held.add(steps(1, range(2), took_s=0.001))
    held.add(steps(0, range(50), took_s=0.001))
    assert handed_out(held) == list(range(30))  # 20 rows are left


@pytest.mark.parametrize("step", [1 << 62, -1, -(1 << 62), 1 << 40])
def test_a_step_number_that_cannot_be_is_counted_and_disturbs_no_other(step: int) -> None:
    held = pool()
    damaged = steps(0, range(3))
    numbers = damaged.step.copy()
    numbers[1] = step
    held.add(Records(**{**_columns(damaged), "step": numbers}, rank=0))
    held.add(steps(0, range(3, 6)))
    held.add(steps(1, range(6)))
    assert handed_out(held) == [0, 1, 2, 3, 4]
    assert held.dropped() == {"out_of_range": 1}


def test_a_large_gap_between_step_numbers_costs_no_time() -> None:
    held = pool()
    for rank in range(2):
        held.add(steps(rank, range(3)))
        held.add(steps(rank, range(1_000_000_000, 1_000_000_003)))
    assert handed_out(held) == [0, 1, 2, 1_000_000_000, 1_000_000_001]


def test_a_hundred_thousand_ranks_of_which_none_has_spoken_get_an_answer() -> None:
    report = JobAnalysis(100_000).report()
    assert report.verdict == "insufficient_evidence"
    assert len(report.ranks) == 100_000
    assert np.isfinite([row.blamed_wait_ns for row in report.ranks]).all()


def _columns(records: Records) -> dict[str, np.ndarray]:
    from paceline_service.analysis.records import COLUMNS

    return {name: getattr(records, name) for name in COLUMNS}
