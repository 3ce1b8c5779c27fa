"""Series that stay, and counters that do not go back."""

from __future__ import annotations

import pytest

from paceline import metrics
from paceline_service.export import job_book
from paceline_service.export.drop_ledger import DropLedger
from paceline_service.export.floors import FindingCosts
from paceline_service.export.job_book import JobBook
from paceline_service.export.job_series import JobSample
from paceline_service.export.rank_choice import RankChoice
from tests.unit.service.job_sample import job, with_cost

WASTED = metrics.RANK_WASTED_GPU_SECONDS


def ranks_of(book: JobBook, sample: JobSample) -> set[int]:
    return {int(rank) for _, rank in book.rows([(0, sample)]).values[WASTED]}


def test_up_to_the_limit_all_ranks_have_series() -> None:
    assert ranks_of(JobBook(8), job(8)) == set(range(8))


def test_beyond_the_limit_the_costliest_ranks_and_the_named_ones_have_series() -> None:
    assert ranks_of(JobBook(8), job(100)) == {3, 98, 99}  # rank 3 is named by a finding


def test_a_rank_that_was_shown_stays_when_others_become_costlier() -> None:
    book = JobBook(8)
    first = job(100)
    before = ranks_of(book, first)
    after = ranks_of(book, with_cost(first, 50, 1e6))
    assert after == before | {50}


def test_the_ranks_with_series_never_exceed_the_limit() -> None:
    choice = RankChoice(1000, 20)
    for turn in range(100):
        chosen = choice.choose(
            {rank: float((rank * 37 + turn * 101) % 1000) for rank in range(1000)}, [turn, turn + 1]
        )
        assert len(chosen) <= 20
    assert {0, 1, 2} <= set(chosen)  # the last quarter was free for those


def test_totals_of_job_and_nodes_hold_all_ranks_whichever_are_shown() -> None:
    rows = JobBook(8).rows([(0, job(100))]).values
    assert rows[metrics.JOB_WASTED_GPU_SECONDS][("train",)] == sum(range(100))
    nodes = rows[metrics.NODE_WASTED_GPU_SECONDS]
    assert len(nodes) == 50
    assert sum(nodes.values()) == sum(range(100))
    assert rows[metrics.JOB_RANK_SERIES][("train",)] == 3
    assert rows[metrics.JOB_WORLD_SIZE][("train",)] == 100


def test_counters_stay_where_an_analysis_made_again_says_less() -> None:
    book = JobBook(8)
    book.rows([(0, job())])
    again = book.rows([(0, with_cost(job(), 3, 1.0))]).values
    assert again[WASTED]["train", "3"] == 3.0
    assert again[metrics.JOB_WASTED_GPU_SECONDS][("train",)] == 6.0
    more = book.rows([(0, with_cost(job(), 3, 5.0))]).values
    assert more[WASTED]["train", "3"] == 5.0


def test_the_buckets_of_step_times_do_not_go_back_either() -> None:
    book = JobBook(8)
    book.rows([(0, job())])
    short = job().steps
    assert short is not None
    fewer = job(steps=type(short)(bounds=short.bounds, cumulative=(3, 9, 9), total=3.0))
    row = book.rows([(0, fewer)]).histograms[metrics.STEP_SECONDS][("train",)]
    assert (row.cumulative, row.total) == ((4, 9, 10), 3.5)


def test_a_new_attempt_begins_anew_and_one_before_it_is_not_shown_again() -> None:
    book = JobBook(8)
    book.rows([(0, job())])
    second = book.rows([(1, with_cost(job(), 3, 0.5))]).values
    assert second[WASTED]["train", "3"] == 0.5
    assert book.rows([(0, job())]).values == {}


def test_a_job_that_comes_back_into_memory_goes_on_where_it_was() -> None:
    book = JobBook(8)
    book.rows([(0, job())])
    assert book.rows([]).values == {}
    back = book.rows([(0, with_cost(job(), 3, 1.0))]).values
    assert back[WASTED]["train", "3"] == 3.0


def test_a_finding_that_is_given_another_cause_is_not_counted_twice() -> None:
    costs = FindingCosts()
    assert costs.update({("straggler", "unknown"): 10.0}) == {("straggler", "unknown"): 10.0}
    told = costs.update({("straggler", "gpu_throttle"): 12.0})
    assert sum(told.values()) == 12.0
    assert told["straggler", "unknown"] == 10.0
    told = costs.update({})
    assert sum(told.values()) == 12.0


def test_findings_of_two_causes_grow_side_by_side() -> None:
    costs = FindingCosts()
    costs.update({("straggler", "input"): 10.0, ("straggler", "gc"): 1.0})
    told = costs.update({("straggler", "input"): 11.0, ("straggler", "gc"): 5.0})
    assert told == {("straggler", "input"): 11.0, ("straggler", "gc"): 5.0}


def test_losses_are_counted_once_whether_their_job_is_in_memory_or_comes_again() -> None:
    ledger = DropLedger(began_wall_ns=100)
    ledger.take(1, 150, {("agent", "ring_torn"): 3})
    ledger.take(1, 150, {("agent", "ring_torn"): 5})
    ledger.take(1, 150, {("agent", "ring_torn"): 2})
    ledger.take(1, 150, {("agent", "ring_torn"): 6})
    assert ledger.total == {("agent", "ring_torn"): 6}


def test_what_a_job_had_lost_before_this_process_began_is_not_counted_by_it() -> None:
    ledger = DropLedger(began_wall_ns=100)
    ledger.take(1, 50, {("agent", "spool_full"): 1000})
    assert not ledger.total
    ledger.take(1, 50, {("agent", "spool_full"): 1001})
    assert ledger.total == {("agent", "spool_full"): 1}


def test_all_jobs_together_have_a_bounded_number_of_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_book, "TOTAL_RANKS", 60)
    book = JobBook(32)
    jobs = [(0, job(32, job=f"job-{n}")) for n in range(4)]
    shown = book.rows(jobs).values[metrics.JOB_RANK_SERIES]
    assert [shown[f"job-{n}",] for n in (0, 1)] == [32, 8]  # of 28: a quarter, rank 3 among them
    assert all(shown[f"job-{n}",] <= 16 for n in (2, 3))
    later = book.rows([(0, job(32, job="job-4"))]).values[metrics.JOB_RANK_SERIES]
    assert later["job-4",] <= 16  # those before it had not left when it came
    assert book.rows([(0, job(32, job="job-5"))]).values[metrics.JOB_RANK_SERIES]["job-5",] == 32
