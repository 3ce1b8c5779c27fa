from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Flag, Phase, RecordKind
from tests.simulator.feed import feed
from tests.simulator.job import ROW_FIELDS, Fault, Scenario, Simulated, simulate

KIND, STEP, FLAGS = (ROW_FIELDS.index(name) for name in ("kind", "step", "flags"))
SLOW = Scenario(steps=600, faults=(Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=200),))


def sampled(job: Simulated, stride: int, *, off_by: dict[int, int] | None = None) -> Simulated:
    """Leave out what ranks do not record with a stride; ``off_by`` shifts some ranks' steps."""

    def row(rank: int, values: tuple[int, ...]) -> tuple[int, ...] | None:
        shift = (off_by or {}).get(rank, 0)
        if (values[STEP] + shift) % stride == 0:
            return values
        if values[KIND] != RecordKind.STEP:
            return None
        return (*values[:FLAGS], values[FLAGS] | Flag.NO_COLLECTIVES)

    rows = [
        [kept for values in rows if (kept := row(rank, values)) is not None]
        for rank, rows in enumerate(job.rows)
    ]
    return Simulated(rows=rows, groups=job.groups, clocks=job.clocks)


def test_one_step_in_five_names_the_same_rank_and_measures_the_same_waits() -> None:
    job = simulate(SLOW)
    whole = feed(job)[0].report()
    fifth = feed(sampled(job, 5))[0].report()
    assert (fifth.verdict, fifth.findings[0].ranks) == ("straggler", [2])
    assert fifth.findings[0].phase == "backward"
    assert abs((fifth.findings[0].first_step or 0) - 200) <= 10
    assert fifth.idle_ratio == pytest.approx(whole.idle_ratio, rel=0.05)
    assert fifth.slowdown == pytest.approx(whole.slowdown, rel=0.02)
    assert (fifth.steps, fifth.steps_left_out) == (120, 480)


def test_steps_that_were_not_recorded_are_no_loss_and_the_report_says_how_many() -> None:
    report = feed(sampled(simulate(Scenario(steps=300)), 5))[0].report().to_dict()
    assert report["verdict"] == "healthy"
    assert report["data"]["complete"]
    assert report["data"]["dropped"] == {}
    assert report["data"]["steps_left_out"] == 240
    assert any(note.startswith("60 of 300 steps") for note in report["data"]["notes"])
    whole = feed(simulate(Scenario(steps=60)))[0].report().to_dict()
    assert "steps_left_out" not in whole["data"]


def test_of_a_step_that_was_not_recorded_the_time_is_known_and_nothing_else() -> None:
    job = simulate(Scenario(steps=40))
    whole, rows = feed(job)[1], feed(sampled(job, 4))[1]
    assert [row.step for row in rows] == list(range(40))
    assert [row.duration_ns for row in rows] == [row.duration_ns for row in whole]
    for row, known in zip(rows, whole, strict=True):
        kept = row.step % 4 == 0
        assert np.array_equal(row.start_ns, known.start_ns)
        assert np.array_equal(row.self_ns, known.self_ns if kept else np.full(4, -1))
        assert row.present.all() == kept


def test_a_step_that_one_rank_did_not_record_is_left_out_and_not_called_unmatched() -> None:
    job = sampled(simulate(Scenario(steps=120)), 2, off_by={3: 1})
    report = feed(job)[0].report()
    assert (report.steps, report.steps_left_out) == (0, 120)
    assert report.dropped == {}
    assert report.verdict == "insufficient_evidence"
    assert "the level was lower" in report.notes[0]


@pytest.mark.parametrize("chunk_rows", [7, 100])
def test_a_stride_in_the_middle_of_a_job_makes_no_step_late(chunk_rows: int) -> None:
    job = simulate(Scenario(steps=120))
    later = sampled(job, 5)
    rows = [
        [row for row in before if row[STEP] < 60] + [row for row in after if row[STEP] >= 60]
        for before, after in zip(job.rows, later.rows, strict=True)
    ]
    mixed = Simulated(rows=rows, groups=job.groups, clocks=job.clocks)
    report = feed(mixed, chunk_rows=chunk_rows)[0].report()
    assert (report.steps, report.steps_left_out, report.dropped) == (72, 48, {})
