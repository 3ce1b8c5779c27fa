"""Whatever the records say, a report has numbers or null in it: never a NaN, never a crash."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from paceline.event_log import LogTelemetry
from paceline.vocabulary import Phase, RecordKind
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.job import ROW_FIELDS, Fault, Scenario, Simulated, simulate

Rows = list[list[tuple[int, ...]]]
STEP, START, END, JOIN = (ROW_FIELDS.index(n) for n in ("step", "start_ns", "end_ns", "join_ns"))
BASE = Scenario(
    data_parallel=4, steps=45, faults=(Fault(rank=1, phase=Phase.BACKWARD, extra_ms=9, first=8),)
)


def changed(row: tuple[int, ...], at: int, value: int) -> tuple[int, ...]:
    return (*row[:at], value, *row[at + 1 :])


def nothing(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[] for _ in rows]


def one_rank(rows: Rows, rng: np.random.Generator) -> Rows:
    return [rows[0], *([] for _ in rows[1:])]


def two_ranks(rows: Rows, rng: np.random.Generator) -> Rows:
    return [*rows[:2], *([] for _ in rows[2:])]


def one_step(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[row for row in mine if row[STEP] == 7] for mine in rows]


def identical(rows: Rows, rng: np.random.Generator) -> Rows:
    return [list(rows[0]) for _ in rows]


def negative(rows: Rows, rng: np.random.Generator) -> Rows:
    return [
        [changed(row, END, row[START] - 1_000_000) if rng.random() < 0.2 else row for row in mine]
        for mine in rows
    ]


def standing_still(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[changed(row, END, row[START]) for row in mine] for mine in rows]


def gaps(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[row for row in mine if rng.random() < 0.7] for mine in rows]


def duplicates(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[row for row in mine for _ in range(1 + int(rng.random() < 0.3))] for mine in rows]


def shuffled(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[mine[i] for i in rng.permutation(len(mine))] for mine in rows]


def no_steps(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[row for row in mine if row[0] != RecordKind.STEP] for mine in rows]


def no_collectives(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[row for row in mine if row[0] != RecordKind.COLLECTIVE] for mine in rows]


def jumping_steps(rows: Rows, rng: np.random.Generator) -> Rows:
    return [[changed(row, STEP, row[STEP] ** 4) for row in mine] for mine in rows]


def huge_times(rows: Rows, rng: np.random.Generator) -> Rows:
    return [
        [changed(row, END, (1 << 61) - 1) if rng.random() < 0.05 else row for row in mine]
        for mine in rows
    ]


def joins_anywhere(rows: Rows, rng: np.random.Generator) -> Rows:
    return [
        [changed(row, JOIN, int(rng.integers(0, 1 << 45))) if row[0] == 1 else row for row in mine]
        for mine in rows
    ]


def other_groups(rows: Rows, rng: np.random.Generator) -> Rows:
    return [
        [changed(row, 2, 1 + row[STEP] // 15 % 2) if row[0] == 1 else row for row in mine]
        for mine in rows
    ]


HOSTILE: list[Callable[[Rows, np.random.Generator], Rows]] = [
    nothing, one_rank, two_ranks, one_step, identical, negative, standing_still, gaps, duplicates,
    shuffled, no_steps, no_collectives, jumping_steps, huge_times, joins_anywhere, other_groups,
]  # fmt: skip


def report_on(job: Simulated, rows: Rows, rng: np.random.Generator) -> dict[str, object]:
    analysis = JobAnalysis(len(rows))
    members = tuple(range(len(rows)))
    for name, ranks in (*job.groups, ("a", members), ("b", members[:2])):
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank, mine in enumerate(rows):
        analysis.declare_rank(rank, node=f"node-{rank % 2}", clock_domain=job.clocks[rank])
        values = {"sm_clock_hz": float(rng.choice([np.nan, 0, -1, 1e9])), "xid": 79,
                  "power_w": 1e308, "throttle_reasons": ["?"], "cpu_steal_ratio": -3,
                  "rank_run_queue_ns_total": float(rng.integers(0, 1 << 60))}  # fmt: skip
        times = [int(rng.integers(0, 1 << 62)), *(row[START] for row in mine[:50]), -5]
        analysis.add_telemetry(
            rank, [LogTelemetry(rank=rank, time_ns=at, values=values) for at in times]
        )
        half = len(mine) // 2
        for part in (mine[:half], mine[half:]):
            analysis.add(records_from_rows(rank, part))
            analysis.advance()
        analysis.rank_ended(rank, "killed")
    analysis.finish()
    report = analysis.report().to_dict()
    json.dumps(report, allow_nan=False)
    return report


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: one.__name__)
@pytest.mark.parametrize("seed", range(2))
def test_hostile_records_give_numbers(
    hostile: Callable[[Rows, np.random.Generator], Rows], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    job = simulate(Scenario(data_parallel=4, steps=45, seed=seed, faults=BASE.faults))
    report = report_on(job, hostile(job.rows, rng), rng)
    assert report["verdict"] in (
        "healthy", "insufficient_evidence", "straggler", "imbalance", "uniform_slowdown",
        "communication", "communication_bound", "hang", "desync", "stage_imbalance",
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(4))
def test_hostile_records_in_any_mixture_give_numbers(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    job = simulate(Scenario(data_parallel=4, steps=45, seed=seed, faults=BASE.faults))
    rows = job.rows
    for pick in rng.choice(np.arange(5, len(HOSTILE)), 4, replace=False):
        rows = HOSTILE[int(pick)](rows, rng)
    report_on(job, rows, rng)


def test_a_hundred_thousand_ranks_of_which_few_were_seen_are_answered() -> None:
    analysis = JobAnalysis(100_000)
    analysis.declare_group(Group(name="dp", ranks=(0, 99_999)))
    analysis.add_telemetry(99_999, [LogTelemetry(rank=99_999, time_ns=1, values={"xid": 79})])
    report = analysis.report()
    assert report.verdict == "insufficient_evidence"
    json.dumps(report.to_dict(), allow_nan=False)
