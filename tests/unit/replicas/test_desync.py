"""Digests of many ranks, made up: who is named, and above all who is not."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Iterable

import pytest

from paceline import telemetry as names
from paceline.event_log import LogTelemetry
from paceline.wire.frames import Sample
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.report import Finding, Report
from paceline_service.export.words import headline
from paceline_service.jobs import checkpoint_codec
from paceline_service.jobs.feed_state import _at_job_step

Value = Callable[[int, int], int]
"""Of rank and check, what the digest is."""


def sample(rank: int, check: int, value: int, *, count: int, **more: object) -> LogTelemetry:
    values = {
        names.REPLICA_DIGEST: f"{value:016x}", names.REPLICA_SET: "dp#12345678/0:0:0000abcd",
        names.REPLICA_COUNT: count, names.REPLICA_STEP: 10 * check, names.REPLICA_SEQ: 30 * check,
        names.REPLICA_PART: "0/1", **more,
    }  # fmt: skip
    return LogTelemetry(rank=rank, time_ns=10**9 + check, values=values)


def told(samples: Iterable[LogTelemetry], ranks: int) -> Report:
    analysis = JobAnalysis(ranks)
    for rank in range(ranks):
        analysis.declare_rank(rank, node=f"node-{rank // 2}")
    for one in samples:
        analysis.add_telemetry(one.rank, [one])
    analysis.advance()
    return analysis.report()


def job(value: Value, *, ranks: int = 4, checks: int = 10) -> list[LogTelemetry]:
    return [
        sample(rank, check, value(rank, check), count=ranks)
        for check in range(checks)
        for rank in range(ranks)
    ]


def flipped(rank: int, check: int) -> int:
    return 1000 + check + (1 << 40 if rank == 2 and check >= 6 else 0)


def desync(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == "desync"]


def test_a_rank_that_differs_from_a_majority_is_named_with_the_step_and_the_way_back() -> None:
    report = told(job(flipped), 4)
    (finding,) = report.findings
    assert (report.verdict, finding.ranks, finding.nodes) == ("desync", [2], ["node-1"])
    assert (finding.first_step, finding.cause) == (60, "unknown")
    assert "all agreed at step 50" in finding.evidence[0]
    assert str(finding.action).endswith("checkpoint of step 50 or earlier, without it")
    assert "# on node-1," in str(finding.action)
    assert headline(report.to_dict()).startswith(
        "The replicas differ: rank 2 on node-1 holds other parameters than the others since step 60"
    )


def test_the_answer_does_not_depend_on_the_order_in_which_digests_come() -> None:
    samples = job(flipped, ranks=8, checks=30)
    by_step = told(samples, 8).to_dict()
    by_rank = told(sorted(samples, key=lambda one: one.rank), 8).to_dict()
    mixed = list(samples)
    random.Random(1).shuffle(mixed)
    assert json.dumps(by_step) == json.dumps(by_rank) == json.dumps(told(mixed, 8).to_dict())
    assert by_step["findings"][0]["first_step"] == 60


def test_of_two_replicas_it_is_said_that_they_differ_and_not_who_is_wrong() -> None:
    report = told(job(lambda rank, check: flipped(2 * rank, check), ranks=2), 2)
    (finding,) = report.findings
    assert (report.verdict, finding.ranks, finding.first_step) == ("desync", [], 60)
    assert "the 2 replicas in group dp (ranks 0-1) do not hold" in finding.evidence[0]
    assert "nobody can say who is right" in finding.evidence[-1]
    assert "# on node-0," in str(finding.action)
    assert "nobody can say whose parameters are wrong" in headline(report.to_dict())


def test_several_ranks_and_several_sets_are_told_once_each() -> None:
    both = told(job(lambda rank, check: check + (rank in (1, 6)) * 99, ranks=8), 8)
    assert [finding.ranks for finding in desync(both)] == [[1, 6]]
    assert "step 0, and that was the first check" in desync(both)[0].evidence[0]
    assert "at the first check already" in str(desync(both)[0].action)
    other = [
        sample(rank, check, flipped(rank, check), count=4, **{names.REPLICA_SET: "dp#2/0:1:0"})
        for check in range(10) for rank in range(4)
    ]  # fmt: skip
    assert len(desync(told([*job(flipped), *other], 4))) == 1


@pytest.mark.parametrize(
    "value",
    [
        lambda rank, check: check,
        lambda rank, check: rank,  # trained apart
        lambda rank, check: check if check % 3 == 0 else 100 * check + rank,  # local steps
        lambda rank, check: check + 99 * (rank == 2 and check == 6),  # a read that met a write
        lambda rank, check: check + 99 * (rank == check % 4),  # each once
    ],
)
def test_healthy_jobs_get_no_finding(value: Value) -> None:
    assert not desync(told(job(value), 4))


def test_ranks_at_other_steps_or_other_collectives_are_not_compared() -> None:
    ahead = [
        sample(rank, check, 1000 + check + (rank == 3), count=4,
               **{names.REPLICA_SEQ: 30 * check + 30 * (rank == 3)})
        for check in range(10) for rank in range(4)
    ]  # fmt: skip
    report = told(ahead, 4)
    assert not desync(report)
    assert any("no check has come from all ranks" in note for note in report.notes)


def test_what_was_lost_names_nobody_and_hides_nobody() -> None:
    keep = random.Random(3)
    healthy = [one for one in job(lambda rank, check: check, checks=50) if keep.random() < 0.7]
    assert not desync(told(healthy, 4))
    lossy = [one for one in job(flipped, ranks=8, checks=50) if keep.random() < 0.9]
    (finding,) = desync(told(lossy, 8))
    assert finding.ranks == [2]


def test_one_check_alone_is_a_note_and_a_repaired_replica_is_over() -> None:
    once = told(job(lambda rank, check: check + 99 * (rank == 2 and check == 6)), 4)
    assert any("rank 2 differed at step 60 and agreed at step 70" in note for note in once.notes)
    repaired = told(job(lambda rank, check: check + 99 * (rank == 2 and 3 <= check < 6)), 4)
    (finding,) = desync(repaired)
    assert (finding.first_step, finding.last_step) == (30, 50)
    assert "at step 60 it agreed again" in finding.evidence[1]


def test_parts_are_compared_apart() -> None:
    def part(check: int) -> int:
        return check // 2 % 3

    samples = [
        sample(rank, check, check + 99 * (rank == 1 and part(check) == 2), count=4,
               **{names.REPLICA_PART: f"{part(check)}/3"})
        for check in range(12) for rank in range(4)
    ]  # fmt: skip
    (finding,) = desync(told(samples, 4))
    assert (finding.ranks, finding.first_step) == ([1], 40)
    assert "part 3 of 3" in finding.evidence[0]


@pytest.mark.parametrize(
    "broken",
    [
        {names.REPLICA_DIGEST: "xyz"}, {names.REPLICA_DIGEST: 7}, {names.REPLICA_SET: ""},
        {names.REPLICA_SET: "x" * 500}, {names.REPLICA_COUNT: 1}, {names.REPLICA_COUNT: 1 << 40},
        {names.REPLICA_STEP: -1}, {names.REPLICA_STEP: "7"}, {names.REPLICA_SEQ: 1.5},
        {names.REPLICA_PART: "a/b"},
    ],
)  # fmt: skip
def test_digests_that_make_no_sense_are_left_out(broken: dict[str, object]) -> None:
    report = told([sample(0, 1, 5, count=4, **broken)], 4)
    assert not report.findings
    assert not any("replica" in note for note in report.notes)


def test_memory_stays_bounded_and_the_state_can_be_written_down() -> None:
    analysis = JobAnalysis(4)
    for check in range(3000):
        for rank in range(4):
            one = sample(rank, check, check + rank * (check % 2), count=4)
            analysis.add_telemetry(rank, [one])
    assert len(pickle.dumps(analysis._replicas, 5)) < 100_000
    assert not desync(checkpoint_codec.load(checkpoint_codec.dump(analysis)).report())


def test_a_rank_is_named_before_the_last_replica_was_heard() -> None:
    # Rank 0 never tells; 6 of 8 agree, which nobody can overturn.
    samples = [one for one in job(flipped, ranks=8) if one.rank != 0]
    (finding,) = desync(told(samples, 8))
    assert (finding.ranks, finding.first_step) == ([2], 60)
    assert "no earlier check heard all of them" in finding.evidence[0]
    assert "a checkpoint well before step 60, without it" in str(finding.action)


def said(rank: int, how: str, why: str) -> LogTelemetry:
    values: dict[str, object] = {names.REPLICA_CHECK: how, names.REPLICA_LEFT_OUT: why}
    return LogTelemetry(rank=rank, time_ns=10**9, values=values)


def test_what_ranks_leave_out_is_a_note_with_the_reason_also_beside_checks_of_the_rest() -> None:
    reasons = [
        said(rank, "every 10 steps", "a module of DDP: one; another: two") for rank in (1, 3)
    ]
    left_out = [
        "replica check: not compared on ranks 1,3: a module of DDP: one",
        "replica check: not compared on ranks 1,3: another: two",
    ]
    alone = [note for note in told(reasons, 4).notes if "replica" in note]
    assert alone == [
        "replica check: ranks 1,3 would check every 10 steps, and nothing came that could be "
        "compared",
        *left_out,
    ]
    beside = [note for note in told(reasons + job(lambda *_: 7), 4).notes if "replica" in note]
    assert beside[0].endswith("all were equal")
    assert beside[1:] == left_out


def test_steps_of_a_restarted_rank_are_counted_on() -> None:
    moved = _at_job_step(Sample(5, {names.REPLICA_STEP: 7, "power_w": 1.5}), 100)
    assert moved == Sample(5, {names.REPLICA_STEP: 107, "power_w": 1.5})
    other = Sample(6, {"power_w": 1.5})
    assert _at_job_step(other, 100) is other
