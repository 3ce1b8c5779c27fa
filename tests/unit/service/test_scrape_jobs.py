"""Snapshots as /metrics shows them: who is silent, what is silenced, which jobs are of now."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from paceline import metrics
from paceline_service.analysis.network.series import TransferFigures
from paceline_service.analysis.whatif.drain import Drain, History
from paceline_service.export.job_series import job_rows
from paceline_service.export.rows import Rows
from paceline_service.jobs.snapshot import Figures, Snapshot, StepTotals
from paceline_service.jobs.steps import RecentSteps, Step
from paceline_service.scrape_jobs import (
    JobSamples,
    job_sample,
    lost_by,
    recoverable_ratio,
    silenced_rows,
    silent_ranks,
)
from paceline_service.store.frames import AttemptRef
from tests.unit.service.job_sample import job

S = 10**9
NOW_NS = 1_000 * S
STRAGGLER = {
    "kind": "straggler", "cause": "compute", "ranks": [3], "nodes": ["node-1"], "links": [],
    "first_step": 10, "last_step": 100, "recoverable_ratio": 0.2, "wasted_gpu_s": 3.0,
}  # fmt: skip


def attempt(**changes: Any) -> AttemptRef:
    values: dict[str, Any] = {
        "id": 1, "job": "train", "ordinal": 0, "run_id": "run", "launch_attempt": 0,
        "world_size": 4, "first_seen_wall_ns": 0,
    }  # fmt: skip
    return AttemptRef(**(values | changes))


def snapshot(*findings: dict[str, Any], ranks: int = 4, **changes: Any) -> Snapshot:
    told = job(ranks)
    rows = [{**row, "last_seen_wall_ns": NOW_NS, "ended": "", "dropped": {}} for row in told.ranks]
    report = {**told.report, "findings": list(findings), "job": {"steps": 100}}
    values: dict[str, Any] = {
        "attempt": attempt(world_size=ranks), "state": "running", "report": report,
        "report_json": msgspec.json.encode(report), "ranks": rows, "groups": [], "nodes": {},
        "last_seen_wall_ns": NOW_NS, "last_step": 100, "ranks_seen": ranks, "frame_id": 1,
        "step_totals": StepTotals(buckets=(0,) * 17, count=100),
    }  # fmt: skip
    return Snapshot(**(values | changes))


def with_rank(one: Snapshot, rank: int, **changes: Any) -> Snapshot:
    rows = [{**row, **changes} if row["rank"] == rank else row for row in one.ranks]
    return replace(one, ranks=rows)


def test_a_rank_that_nobody_heard_of_for_the_limit_is_silent() -> None:
    quiet = with_rank(snapshot(), 2, last_seen_wall_ns=NOW_NS - 16 * S)
    assert silent_ranks(snapshot(), NOW_NS) == 0
    assert silent_ranks(quiet, NOW_NS) == 1
    assert silent_ranks(quiet, NOW_NS + 20 * S) == 4


def test_a_rank_that_ended_is_not_silent_and_neither_is_one_of_an_ended_job() -> None:
    gone = with_rank(snapshot(), 2, last_seen_wall_ns=0, ended="closed")
    assert silent_ranks(gone, NOW_NS) == 0
    assert silent_ranks(replace(snapshot(), state="ended"), NOW_NS + 100 * S) == 0


def test_a_rank_that_never_spoke_is_silent_once_the_job_has_run_for_the_limit() -> None:
    lacking = replace(snapshot(), attempt=attempt(world_size=6))
    assert silent_ranks(lacking, NOW_NS) == 2
    begun = attempt(world_size=6, first_seen_wall_ns=NOW_NS - 5 * S)
    assert silent_ranks(replace(lacking, attempt=begun), NOW_NS) == 0


def test_a_job_that_somebody_only_looks_at_is_not_shown() -> None:
    samples = JobSamples(live_window_s=900)
    assert len(samples.of([snapshot()], NOW_NS + 899 * S)) == 1
    assert samples.of([snapshot()], NOW_NS + 901 * S) == []


def test_the_newest_attempt_in_memory_is_shown_and_made_once_per_snapshot() -> None:
    older, newer = snapshot(), snapshot(attempt=attempt(id=2, ordinal=1))
    samples = JobSamples(live_window_s=900)
    (first,) = samples.of([newer, older], NOW_NS)
    (again,) = samples.of([older, newer], NOW_NS)
    assert first.ordinal == 1
    assert again.sample is first.sample
    (changed,) = samples.of([older, replace(newer, last_step=101)], NOW_NS)
    assert changed.sample.last_step == 101


def test_what_is_recovered_counts_findings_that_go_on_only() -> None:
    over = {**STRAGGLER, "last_step": 20}
    assert recoverable_ratio(snapshot(over)) == 0.0
    assert recoverable_ratio(snapshot(STRAGGLER)) == pytest.approx(0.2)
    network = {**STRAGGLER, "kind": "communication", "recoverable_ratio": 0.5}
    assert recoverable_ratio(snapshot(STRAGGLER, network)) == pytest.approx(1 - 0.8 * 0.5)
    assert recoverable_ratio(snapshot(step_totals=StepTotals())) is None


def test_two_slow_ranks_give_back_more_together_than_one_by_one() -> None:
    history = History(
        ranks=np.array([[2, 3, 0, 1]] * 10), self_ns=np.array([[90, 90, 50, 50]] * 10),
        step=np.arange(10), duration_ns=np.full(10, 100), group_of=np.zeros(4, dtype=np.int64),
    )  # fmt: skip
    drain = Drain(steps=10, first_step=0, last_step=9, duration_ns=1000, ranks={}, nodes={},
                  history=history)  # fmt: skip
    both = [{**STRAGGLER, "ranks": [rank], "recoverable_ratio": 0.0} for rank in (2, 3)]
    assert recoverable_ratio(snapshot(*both, drain=drain)) == pytest.approx(0.4)


class Book:
    """Silences of the findings about some ranks."""

    def __init__(self, *ranks: int) -> None:
        self._ranks = list(ranks)

    def covering(self, job: str, finding: dict[str, Any]) -> object | None:
        return self if job == "train" and finding["ranks"] == self._ranks else None


def silenced(book: Any, *findings: dict[str, Any]) -> Rows:
    rows = Rows()
    silenced_rows(rows, JobSamples(900).of([snapshot(*findings)], NOW_NS), book)
    return rows


def test_a_flag_is_silenced_when_every_finding_behind_it_is() -> None:
    other = {**STRAGGLER, "ranks": [2]}
    rows = silenced(Book(3), STRAGGLER, other).values
    assert rows[metrics.RANK_SILENCED] == {("train", "3", "straggler", "compute"): 1.0}
    assert not rows[metrics.NODE_SILENCED]  # rank 2 is of that node, too
    assert not rows[metrics.JOB_FINDING_SILENCED]
    alone = silenced(Book(3), STRAGGLER).values
    assert alone[metrics.NODE_SILENCED] == {("train", "node-1", "straggler", "compute"): 1.0}
    assert alone[metrics.JOB_FINDING_SILENCED] == {("train", "straggler", "compute"): 1.0}


def test_what_the_analysis_lost_is_told_apart_from_what_ranks_lost() -> None:
    lost = with_rank(snapshot(), 1, dropped={"frames_late": 2, "ring_torn": 3})
    assert lost_by(lost) == {("analysis", "frames_late"): 2, ("agent", "ring_torn"): 3}


def test_the_newest_step_of_a_bucket_is_its_example() -> None:
    recent = RecentSteps(10)
    nothing = np.zeros((10, 4), dtype=np.int64)
    recent.extend(
        Step(step=n, start_wall_ns=n * S, duration_ns=30_000_000, slowest_rank=n % 2,
             per_rank=nothing)
        for n in (7, 8)
    )  # fmt: skip
    row = job_sample(snapshot(recent=recent)).steps
    assert row is not None
    ((bucket, example),) = row.examples.items()
    assert row.bounds[bucket - 1] < 0.03 <= row.bounds[bucket]
    assert example.labels == {"step": "8", "rank": "0"}
    assert example.time_s == 8.03


def test_figures_of_the_snapshot_are_shown() -> None:
    transfers = TransferFigures(
        group="dp0", op="all_reduce", buckets=(0,) * 18 + (1, 1), sum_ns=3.0 * S,
        busbw_bytes_per_s=5e9, alpha_ns=2000.0, beta_ns_per_byte=0.5, residual_ratio=1.5,
    )  # fmt: skip
    figures = Figures(phase_ns=np.zeros((4, 7), dtype=np.int64), transfers=(transfers,))
    rows = job_rows(job_sample(snapshot(figures=figures)), range(4), 512)
    labels = ("train", "dp0", "all_reduce")
    assert rows.values[metrics.COLLECTIVE_ALPHA_SECONDS][labels] == pytest.approx(2e-6)
    assert rows.values[metrics.COLLECTIVE_BETA][labels] == 2e9
    assert rows.values[metrics.COLLECTIVE_BUSBW][labels] == 5e9
    assert rows.values[metrics.COLLECTIVE_RESIDUAL_RATIO][labels] == 1.5
    histogram = rows.histograms[metrics.COLLECTIVE_TRANSFER_SECONDS][labels]
    assert (histogram.cumulative[-1], histogram.total) == (2, 3.0)


def test_telemetry_of_a_rank_that_fell_silent_or_of_a_job_that_ended_is_not_of_now() -> None:
    hot = with_rank(snapshot(), 1, telemetry={"values": {"sm_clock_hz": 1e9}})
    shown = job_rows(job_sample(hot), range(4), 512).values
    assert shown[metrics.RANK_SM_CLOCK_HERTZ] == {("train", "1"): 1e9}
    silent = with_rank(hot, 1, last_seen_wall_ns=NOW_NS - 61 * S)
    for one in (silent, replace(hot, state="ended")):
        assert not job_rows(job_sample(one), range(4), 512).values[metrics.RANK_SM_CLOCK_HERTZ]
