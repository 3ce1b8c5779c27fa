from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from paceline.vocabulary import Op, RecordKind
from paceline_service.analysis.evidence.stages import find_places
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import Group, records_from_rows
from paceline_service.analysis.report import Finding, Report
from tests.simulator.feed import feed
from tests.simulator.job import ROW_FIELDS, Scenario, Simulated, simulate
from tests.simulator.pipeline import Pipeline, simulate_pipeline

START = ROW_FIELDS.index("start_ns")


def rows_of(job: Simulated) -> Table:
    tables = [as_table(records_from_rows(rank, rows)) for rank, rows in enumerate(job.rows)]
    whole = stack(tables)
    return whole.take((whole.kind == RecordKind.COLLECTIVE) & (whole.step == 0))


def transfers(pairs: list[tuple[int, int]], size: int, *, at_once: bool = False) -> Table:
    """Each rank sends and receives in the order of ``pairs``, one ns after the other."""
    rows: list[list[tuple[int, ...]]] = [[] for _ in range(size)]
    for number, (source, destination) in enumerate(pairs, start=1):
        time = 1 if at_once else number
        for rank, op, peer in ((source, Op.SEND, destination), (destination, Op.RECV, source)):
            row = (int(RecordKind.COLLECTIVE), int(op), 0, time, 0, peer, 1, time, time + 1, time,
                   time, 0)  # fmt: skip
            rows[rank].append(row)
    return stack([as_table(records_from_rows(rank, r)) for rank, r in enumerate(rows) if r])


def stage_findings(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.kind == "stage_imbalance"]


def report_of(scenario: Pipeline, nodes: int = 1) -> Report:
    return feed(simulate_pipeline(scenario), nodes=nodes)[0].report()


def time_of(report: Report) -> int:
    """The time of all steps, which is the same on every rank."""
    row = report.ranks[0]
    return row.self_ns + row.wait_ns + row.exposed_comm_ns


@pytest.mark.parametrize(("replicas", "stages"), [(1, 2), (3, 4), (2, 9)])
def test_stages_and_replicas_are_read_from_the_transfers(replicas: int, stages: int) -> None:
    job = simulate_pipeline(Pipeline(replicas=replicas, stages=stages, steps=1))
    places = find_places(rows_of(job), replicas * stages)
    assert places is not None
    ranks = np.arange(replicas * stages)
    assert places.stage.tolist() == (ranks % stages).tolist()
    assert places.replica.tolist() == (ranks // stages).tolist()


def test_a_job_without_transfers_has_no_stages() -> None:
    job = simulate(Scenario(steps=2))
    assert find_places(rows_of(job), 4) is None


@pytest.mark.parametrize(
    "pairs",
    [
        [(0, 1), (2, 3), (1, 2), (3, 0)],  # a ring in two phases
        [(0, 1), (0, 2), (0, 3)],  # one rank tells all others
        [(0, 1), (1, 2), (3, 2)],  # a rank between two chains
        [(0, 1), (1, 0), (2, 3)],  # replicas of different shape are none
    ],
)
def test_other_uses_of_send_and_recv_are_no_pipeline(pairs: list[tuple[int, int]]) -> None:
    places = find_places(transfers(pairs, 4), 4)
    # A pair that exchanges looks like two stages, as far as every replica does.
    if pairs == [(0, 1), (1, 0), (2, 3)]:
        assert places is not None
        assert places.stage.tolist() == [0, 1, 0, 1]
    else:
        assert places is None


def test_a_ring_that_sends_and_receives_at_once_is_no_pipeline() -> None:
    assert find_places(transfers([(r, (r + 1) % 4) for r in range(4)], 4, at_once=True), 4) is None


def test_receives_that_lead_in_a_circle_or_out_of_the_job_give_no_stages() -> None:
    circle = transfers([(0, 1), (1, 2)], 3)
    circle.code[:] = Op.RECV
    circle.peer[:] = [1, 2, 2, 0][: len(circle)]
    assert find_places(circle, 3) is None
    outside = transfers([(0, 1)], 2)
    outside.peer[outside.rank == 1] = 7
    assert find_places(outside, 2) is None


@pytest.mark.parametrize("heavy", [0, 2, 3])
@pytest.mark.parametrize("replicas", [2, 4])
def test_a_heavy_stage_is_named_with_its_ranks_and_its_weight(heavy: int, replicas: int) -> None:
    weight = tuple(1.3 if stage == heavy else 1.0 for stage in range(4))
    report = report_of(Pipeline(replicas=replicas, weight=weight))
    assert report.verdict == "stage_imbalance"
    (finding,) = report.findings
    assert finding.ranks == [replica * 4 + heavy for replica in range(replicas)]
    assert finding.slowdown == pytest.approx(1.3, abs=0.01)
    mean = (3 + 1.3) / 4
    even = report_of(Pipeline(replicas=replicas, weight=(mean,) * 4))
    assert finding.recoverable_ratio == pytest.approx(1 - time_of(even) / time_of(report), abs=0.01)
    assert finding.wasted_gpu_s is not None
    assert finding.wasted_gpu_s > 0
    assert finding.action is not None
    excess = 1 - mean / 1.3
    assert re.search(rf"move {excess:.0%} of the layers of stage {heavy}", finding.action)


def test_the_others_stand_still_as_long_as_the_steps_are_longer() -> None:
    scenario = Pipeline(replicas=2, jitter=0.0, weight=(1, 1, 1, 1.5), steps=25)
    heavy = report_of(scenario)
    light = report_of(replace(scenario, weight=()))
    (finding,) = stage_findings(heavy)
    assert finding.wasted_gpu_s == pytest.approx(
        6 * (time_of(heavy) - time_of(light)) / 1e9, rel=0.03
    )


def test_a_healthy_spread_of_stages_is_nothing() -> None:
    report = report_of(Pipeline(replicas=4, weight=(1.01, 0.99, 1.015, 1.0), steps=80))
    assert (report.verdict, report.findings) == ("healthy", [])


def test_one_slow_rank_of_a_stage_is_no_stage_imbalance() -> None:
    report = report_of(Pipeline(replicas=4, slow={6: 1.4}, steps=100))
    assert stage_findings(report) == []


def test_a_slow_rank_beside_a_heavy_stage_leaves_the_stage_its_own_weight() -> None:
    report = report_of(Pipeline(replicas=4, weight=(1, 1, 1, 1.3), slow={3: 1.2}, steps=100))
    (finding,) = stage_findings(report)
    assert finding.ranks == [3, 7, 11, 15]
    assert finding.slowdown == pytest.approx(1.3, abs=0.02)


def test_a_stage_that_became_heavy_later_is_named_with_the_steps_in_which_it_was() -> None:
    slow = dict.fromkeys((1, 5, 9, 13), 1.4)
    later = Pipeline(replicas=4, slow=slow, slow_from=60, steps=200)
    (finding,) = stage_findings(report_of(later))
    (always,) = stage_findings(report_of(replace(later, slow_from=0)))
    assert finding.ranks == [1, 5, 9, 13]
    assert finding.first_step is not None
    assert abs(finding.first_step - 60) <= 8
    assert finding.last_step == 199
    assert finding.slowdown == pytest.approx(1.4, abs=0.02)
    assert finding.recoverable_ratio == pytest.approx(always.recoverable_ratio, rel=0.1)
    assert any("since about step" in sentence for sentence in finding.evidence)


def test_a_stage_that_was_heavy_for_a_while_is_named_with_that_while() -> None:
    slow = dict.fromkeys((1, 5, 9, 13), 1.4)
    scenario = Pipeline(replicas=4, slow=slow, slow_from=60, slow_until=140, steps=250)
    (finding,) = stage_findings(report_of(scenario))
    (always,) = stage_findings(report_of(replace(scenario, slow_from=0, slow_until=1 << 30)))
    assert finding.first_step is not None
    assert finding.last_step is not None
    assert abs(finding.first_step - 60) <= 8
    assert abs(finding.last_step - 140) <= 8
    assert finding.recoverable_ratio == pytest.approx(always.recoverable_ratio, rel=0.25)


@pytest.mark.parametrize("slowdown", [1.03, 1.2, 2.0])
def test_of_two_replicas_one_slow_rank_makes_no_heavy_stage(slowdown: float) -> None:
    report = report_of(Pipeline(replicas=2, slow={1: slowdown}, steps=60))
    assert stage_findings(report) == []


def test_a_lone_rank_that_became_slow_later_is_no_stage() -> None:
    report = report_of(Pipeline(replicas=1, slow={2: 1.4}, slow_from=60, steps=150))
    assert stage_findings(report) == []


def test_weight_that_costs_nothing_is_nothing() -> None:
    """With one microbatch the stages take turns: no cut of the model is better than another."""
    report = report_of(Pipeline(replicas=4, weight=(1, 1, 1, 1.5), microbatches=1))
    assert stage_findings(report) == []


def test_of_one_replica_the_evidence_says_that_a_slow_gpu_looks_the_same() -> None:
    (finding,) = stage_findings(report_of(Pipeline(replicas=1, weight=(1, 1, 1.3, 1))))
    assert finding.ranks == [2]
    assert any("slow GPU" in sentence for sentence in finding.evidence)


def test_groups_that_are_named_after_another_dimension_are_no_pipeline() -> None:
    job = simulate_pipeline(Pipeline(weight=(1, 1, 1, 1.5)))
    analysis = JobAnalysis(8)
    for name, ranks in job.groups:
        analysis.declare_group(Group(name=name, ranks=ranks, mesh_dim="cp"))
    for rank, rows in enumerate(job.rows):
        analysis.add(records_from_rows(rank, rows))
    analysis.finish()
    report = analysis.report()
    assert stage_findings(report) == []
    assert report.what_if is not None
    assert report.what_if["stages"] == []


def test_the_middle_stages_are_no_peers_of_each_other() -> None:
    """They issue the same, and hold layers of different weight: no rank of them is slow."""
    report = report_of(Pipeline(replicas=4, weight=(1, 1.04, 1, 1), jitter=0.002, steps=120))
    assert [finding for finding in report.findings if finding.kind == "straggler"] == []


def test_the_evidence_carries_the_published_figures() -> None:
    (finding,) = stage_findings(report_of(Pipeline(weight=(1, 1, 1, 1.4))))
    text = " ".join(finding.evidence)
    assert re.search(r"stage 3, the last, of 4 works .* ms per step", text)
    assert re.search(r"S = 1\.\d\d", text)
    assert re.search(r"M_S = \d\.\d\d", text)
    assert re.search(r"M_W = \d\.\d\d", text)


def test_without_phases_all_self_time_counts() -> None:
    job = simulate_pipeline(Pipeline(weight=(1, 1, 1, 1.4)))
    for rows in job.rows:
        rows[:] = [row for row in rows if row[0] != RecordKind.PHASE]
    (finding,) = stage_findings(feed(job)[0].report())
    assert finding.ranks == [3, 7]
    assert finding.phase is None
