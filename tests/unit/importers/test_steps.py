from __future__ import annotations

from pathlib import Path

from paceline.vocabulary import RecordKind
from paceline_service.analysis.records import concatenate
from paceline_service.importers.events import read_event_log
from tests.unit.importers.logs import MS, all_reduce, header, phase, small_job, write


def steps_of(path: Path, rank: int = 0) -> list[tuple[int, int, int]]:
    """Return (step, start, end) in ms of each STEP record of a rank."""
    with read_event_log([path]) as log:
        parts = [part for records in log.rounds() for part in records if part.rank == rank]
    records = concatenate(parts)
    steps = records.take(records.kind == RecordKind.STEP)
    return [
        (step, start // MS, end // MS)
        for step, start, end in zip(
            steps.step.tolist(), steps.start_ns.tolist(), steps.end_ns.tolist(), strict=True
        )
    ]


def test_derived_steps_tile_the_time_from_the_first_record_to_the_last(tmp_path: Path) -> None:
    path = write(tmp_path / "a", small_job(2, steps=3))
    assert steps_of(path) == [(0, 10, 70), (1, 70, 170), (2, 170, 270)]


def test_a_step_after_a_gap_starts_with_its_own_first_record(tmp_path: Path) -> None:
    lines = [line for line in small_job(2, steps=6) if line.get("step") in (None, 0, 4)]
    assert steps_of(write(tmp_path / "a", lines)) == [(0, 10, 70), (4, 410, 470)]


def test_steps_that_the_log_tells_are_not_derived(tmp_path: Path) -> None:
    told = {"rank": 0, "step": 0, "step_start_ns": 5 * MS, "step_end_ns": 90 * MS}
    lines = [header(1), phase(0, 0), told, phase(0, 1)]
    assert steps_of(write(tmp_path / "a", lines)) == [(0, 5, 90)]


def test_the_last_step_does_not_end_while_something_in_it_is_pending(tmp_path: Path) -> None:
    lines = [*small_job(2, steps=2), all_reduce(0, 2, end_ns=None), all_reduce(1, 2)]
    path = write(tmp_path / "a", lines)
    assert [step for step, _, _ in steps_of(path)] == [0, 1]
    assert [step for step, _, _ in steps_of(path, rank=1)] == [0, 1, 2]


def test_records_in_any_order_give_the_same_steps(tmp_path: Path) -> None:
    lines = small_job(2, steps=40)
    ordered = steps_of(write(tmp_path / "a", lines))
    shuffled = [lines[0], *reversed(lines[1:])]
    assert steps_of(write(tmp_path / "b", shuffled)) == ordered
