"""What is not one collective is refused and counted."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Flag, Op, RecordKind
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.matching.groups import members_of
from paceline_service.analysis.matching.match import Matches, match
from paceline_service.analysis.matching.table import as_table, stack
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.feed import feed
from tests.simulator.job import Fault, Phase, Scenario, Simulated, simulate

MS = 1_000_000


def row(
    seq: int, start_ms: float, end_ms: float, *, op: int = Op.ALL_REDUCE, peer: int = -1,
    payload: int = 8, group: int = 0, flags: int = 0,
) -> tuple[int, ...]:  # fmt: skip
    start, end = int(start_ms * MS), int(end_ms * MS)
    return (
        RecordKind.COLLECTIVE,
        op,
        group,
        seq,
        0,
        peer,
        payload,
        start,
        end,
        start,
        start,
        flags,
    )


def matched(
    ranks: dict[int, list[tuple[int, ...]]], groups: list[tuple[int, ...]], *, shared: bool = True
) -> Matches:
    table = stack([as_table(records_from_rows(rank, rows)) for rank, rows in ranks.items()])
    members = members_of([Group(name=f"g{i}", ranks=g) for i, g in enumerate(groups)])
    size = max(*ranks, *(r for g in groups for r in g)) + 1
    return match(table, members, np.zeros(size, dtype=np.int64) if shared else np.full(size, -1))


def test_a_rank_that_is_no_member_is_refused_though_the_number_of_records_is_right() -> None:
    ranks = {rank: [row(0, 10, 20)] for rank in (0, 1, 5)}
    assert matched(ranks, [(0, 1, 2)]).mismatched == 1
    assert matched(ranks, [(0, 1, 5)]).complete.tolist() == [True]


@pytest.mark.parametrize(
    ("op", "refused"), [(Op.ALL_REDUCE, True), (Op.BROADCAST, True), (Op.ALL_GATHER, False)]
)
def test_payloads_that_must_be_equal_and_differ_are_refused(op: Op, refused: bool) -> None:
    ranks = {0: [row(0, 10, 20, op=op, payload=8)], 1: [row(0, 10, 20, op=op, payload=16)]}
    assert matched(ranks, [(0, 1)]).mismatched == int(refused)


def test_a_counter_that_is_off_by_one_shows_in_times_that_cannot_be() -> None:
    """All collectives look alike, and rank 1 counts from 1 what rank 0 counts from 0."""
    ranks = {
        0: [row(seq, 100 * seq, 100 * seq + 5) for seq in range(10)],
        1: [row(seq + 1, 100 * seq, 100 * seq + 5) for seq in range(10)],
    }
    matches = matched(ranks, [(0, 1)])
    assert not matches.complete.any()
    assert (matches.mismatched, matches.incomplete) == (9, 2)


def test_times_that_cannot_be_are_only_seen_on_one_clock() -> None:
    ranks = {0: [row(0, 10, 20)], 1: [row(0, 9010, 9020)]}
    assert matched(ranks, [(0, 1)]).mismatched == 1
    assert matched(ranks, [(0, 1)], shared=False).mismatched == 0


def test_bounds_instead_of_times_are_no_contradiction() -> None:
    ranks = {0: [row(0, 10, 20, flags=int(Flag.PARTIAL))], 1: [row(0, 40, 50)]}
    assert matched(ranks, [(0, 1)]).complete.tolist() == [True]


def test_a_collective_that_ends_before_it_starts_is_refused() -> None:
    ranks = {0: [row(0, 30, 20)], 1: [row(0, 10, 40)]}
    assert matched(ranks, [(0, 1)], shared=False).mismatched == 1


def test_sequence_numbers_from_one_end_of_the_range_to_the_other_are_matched() -> None:
    big = (1 << 62) - 1
    ranks = {r: [row(s, 10, 20, group=g) for g in (0, 1) for s in (0, 7, big)] for r in (0, 1)}
    assert matched(ranks, [(0, 1), (1, 0)]).complete.tolist() == [True] * 6


def test_matching_does_not_depend_on_the_order_of_records() -> None:
    rng = np.random.default_rng(5)
    rows = {r: [row(s, 10 * s, 10 * s + 5, group=s % 3) for s in range(40)] for r in range(6)}
    ordered = matched(rows, [tuple(range(6))] * 3)
    mixed = {r: [rows[r][i] for i in rng.permutation(40)] for r in rng.permutation(6).tolist()}
    again = matched(mixed, [tuple(range(6))] * 3)
    assert again.complete.all()
    assert np.array_equal(again.rows.seq, ordered.rows.seq)
    assert np.array_equal(again.rows.rank, ordered.rows.rank)


def test_sends_and_receives_of_both_directions_are_pairs_of_their_own() -> None:
    there = [row(s, 10 + 100 * s, 20 + 100 * s, op=Op.SEND, peer=1) for s in range(3)]
    back = [row(s, 60 + 100 * s, 70 + 100 * s, op=Op.RECV, peer=1) for s in range(3)]
    theirs = [
        row(s, 10 + 100 * s + off, 20 + 100 * s + off, op=op, peer=0)
        for s in range(3)
        for op, off in ((Op.RECV, 0), (Op.SEND, 50))
    ]
    matches = matched({0: there + back, 1: theirs}, [(0, 1, 2, 3)])
    assert matches.complete.tolist() == [True] * 6


def test_a_window_that_begins_later_on_one_rank_costs_what_it_lacks_and_no_more() -> None:
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=60)
    job = simulate(Scenario(steps=160, faults=(fault,)))
    job.rows[1][:] = [r for r in job.rows[1] if r[4] >= 40]
    analysis, steps = feed(job)
    report = analysis.report()
    assert [finding.ranks for finding in report.findings] == [[2]]
    assert report.dropped["unmatched"] == 40 * 3
    assert len(steps) == 160


def test_lost_and_doubled_records_do_not_hide_the_culprit() -> None:
    rng = np.random.default_rng(9)
    fault = Fault(rank=2, phase=Phase.BACKWARD, extra_ms=8, first=60)
    job = simulate(Scenario(steps=200, faults=(fault,)))
    for rows in job.rows:
        rows[:] = [
            r
            for r in rows
            for _ in range(
                1 if r[0] != RecordKind.COLLECTIVE else int(rng.choice(3, p=[0.02, 0.96, 0.02]))
            )
        ]
    report = feed(job)[0].report()
    assert [finding.ranks for finding in report.findings] == [[2]]
    assert report.dropped["unmatched"] > 0
    assert report.dropped["duplicate"] > 0


def test_groups_that_are_made_again_in_mid_run_are_matched_apart() -> None:
    fault = Fault(rank=1, phase=Phase.BACKWARD, extra_ms=8, first=40)
    job = simulate(Scenario(steps=160, faults=(fault,)))
    again = [
        [(*r[:2], 1, r[3] - 240, *r[4:]) if r[0] == RecordKind.COLLECTIVE and r[4] >= 80 else r
         for r in rows]
        for rows in job.rows
    ]  # fmt: skip
    groups = [*job.groups, ("dp0-again", job.groups[0][1])]
    report = feed(Simulated(rows=again, groups=groups, clocks=job.clocks))[0].report()
    assert [finding.ranks for finding in report.findings] == [[1]]
    assert report.dropped == {}


def test_collectives_of_a_job_that_declared_no_group_are_not_matched() -> None:
    analysis = JobAnalysis(2)
    for rank in range(2):
        step = (RecordKind.STEP, 0, 0, 0, 0, -1, 0, 1, 30 * MS, 0, 0, 0)
        analysis.add(records_from_rows(rank, [row(0, 10, 20), step]))
    analysis.finish()
    report = analysis.report()
    assert (report.verdict, report.dropped) == ("insufficient_evidence", {"unmatched": 2})
