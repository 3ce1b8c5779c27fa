from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from paceline.vocabulary import Phase
from paceline_service.analysis.channel import JobFacts, JudgedStep
from paceline_service.analysis.evidence.stages import Places, find_places
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.records import Group, records_from_rows
from paceline_service.analysis.report import Finding
from paceline_service.analysis.whatif.costs import WhatIf, what_if
from paceline_service.analysis.whatif.graph import Graph, graph_of, joined_graphs
from paceline_service.analysis.whatif.replay import Replay
from tests.simulator.feed import analyse, feed
from tests.simulator.job import Fault, Scenario, Simulated, simulate
from tests.simulator.pipeline import Pipeline, simulate_pipeline


class Keep:
    """A channel that keeps the graphs of all steps, and the places."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self.places: Places | None = None

    def see(self, step: JudgedStep) -> None:
        graph = graph_of(step)
        assert graph is not None
        self.graphs.append(graph)
        self.places = find_places(step.matches.rows, len(step.row.self_ns))

    def findings(self, facts: JobFacts) -> list[Finding]:
        return []

    def notes(self, facts: JobFacts) -> list[str]:
        return []


def kept(job: Simulated) -> Keep:
    keep = Keep()
    analysis = JobAnalysis(len(job.rows))
    analysis._channels.append(keep)
    for name, ranks in job.groups:
        analysis.declare_group(Group(name=name, ranks=ranks))
    for rank, rows in enumerate(job.rows):
        analysis.declare_rank(rank, clock_domain=job.clocks[rank])
        analysis.add(records_from_rows(rank, rows))
    analysis.finish()
    return keep


def base_ns(graph: Graph) -> np.ndarray:
    return Replay(graph).step_ns(graph.work_ns[:, None], graph.transfer_ns[:, None])[:, 0]


def figures(job: Simulated) -> WhatIf:
    keep = kept(job)
    size = len(job.rows)
    nowhere = np.full(size, -1, dtype=np.int64)
    places = keep.places or Places(stage=nowhere, replica=nowhere)
    found = what_if(joined_graphs(keep.graphs), places)
    assert found is not None
    return found


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("microbatches", [1, 4, 9])
def test_an_even_pipeline_takes_what_the_closed_form_says(stages: int, microbatches: int) -> None:
    scenario = Pipeline(
        stages=stages, microbatches=microbatches, steps=3, jitter=0.0, transfer_ms=0.0,
        reduce_ms=2.0, optimizer_ms=3.0,
    )  # fmt: skip
    took = base_ns(joined_graphs(kept(simulate_pipeline(scenario)).graphs))
    expected_ms = (microbatches + stages - 1) * (4.0 + 8.0) + 2.0 + 3.0 + 0.05
    assert took == pytest.approx(expected_ms * 1e6, rel=1e-6)


def test_a_replay_of_steps_as_they_were_takes_what_they_took() -> None:
    scenario = Pipeline(replicas=3, steps=6, jitter=0.2, weight=(1, 1.3, 0.8, 1), slow={5: 1.4})
    graph = joined_graphs(kept(simulate_pipeline(scenario)).graphs)
    assert base_ns(graph) == pytest.approx(graph.took_ns, rel=1e-3)


def test_a_replay_of_a_data_and_tensor_parallel_job_takes_what_it_took() -> None:
    job = simulate(Scenario(data_parallel=4, tensor_parallel=2, steps=12, jitter=0.05))
    graph = joined_graphs(kept(job).graphs)
    # What one step hands on to the next is not replayed: a few percent of jitter.
    assert base_ns(graph).sum() == pytest.approx(graph.took_ns.sum(), rel=0.05)


def test_the_level_order_agrees_with_a_recursion_for_any_durations() -> None:
    graph = joined_graphs(
        kept(simulate_pipeline(Pipeline(stages=3, steps=2, microbatches=3, jitter=0.3))).graphs
    )
    rng = np.random.default_rng(0)
    work = rng.uniform(0, 1e7, size=(len(graph), 3))
    transfer = rng.uniform(0, 1e6, size=(len(graph.transfer_ns), 3))
    replayed = Replay(graph).step_ns(work, transfer)
    arrivals: list[list[int]] = [[] for _ in graph.transfer_ns]
    for point, instance in zip(graph.arrival, graph.arrival_instance, strict=True):
        arrivals[int(instance)].append(int(point))
    for scenario in range(3):

        @cache
        def at(point: int, c: int = scenario) -> float:
            before = int(graph.previous[point])
            time = (at(before, c) if before >= 0 else 0.0) + float(work[point, c])
            instance = int(graph.instance[point])
            if instance >= 0:
                last = max(at(arrival, c) for arrival in arrivals[instance])
                time = max(time, last + float(transfer[instance, c]))
            return time

        for step in range(2):
            longest = max(at(int(point), scenario) for point in np.flatnonzero(graph.step == step))
            assert replayed[step, scenario] == pytest.approx(longest, rel=1e-12)


def test_points_that_wait_for_each_other_in_a_circle_give_no_answer() -> None:
    graph = kept(simulate_pipeline(Pipeline(steps=1))).graphs[0]
    last_of_rank_0 = int(np.flatnonzero(graph.rank == 0)[-1])
    previous = graph.previous.copy()
    previous[0] = last_of_rank_0
    places = Places(stage=np.full(8, -1), replica=np.full(8, -1))
    assert what_if(replace(graph, previous=previous), places) is None


def test_one_slow_rank_among_equals_makes_s_and_m_w_of_the_closed_form() -> None:
    """K ranks, one phase of p, one of them k times as long: the ideal is the mean."""
    fault = Fault(rank=2, phase=Phase.FORWARD, extra_ms=12.0)
    job = simulate(
        Scenario(
            data_parallel=4, steps=20, jitter=0.0, common_jitter=0.0, buckets=1, faults=(fault,),
            phase_ms={Phase.HOST: 0.0, Phase.INPUT: 0.0, Phase.FORWARD: 10.0, Phase.BACKWARD: 20.0,
                      Phase.OPTIMIZER: 0.0},
        )
    )  # fmt: skip
    found = figures(job)
    transfer = 2.0
    took, ideal = 10 + 12 + 20 + transfer, 10 + 12 / 4 + 20 + transfer
    assert found.slowdown == pytest.approx(took / ideal, rel=0.01)
    assert found.top == (2,)
    assert found.rank_slowdowns[2] == pytest.approx(took / ideal, rel=0.01)
    assert found.rank_slowdowns[[0, 1, 3]] == pytest.approx(1.0, rel=0.01)
    # Repaired it takes the mean, and the others less than that.
    assert found.top_share == pytest.approx(1.0, abs=0.02)


def test_the_share_of_the_last_stage_is_that_of_its_closed_form() -> None:
    scenario = Pipeline(
        stages=4, microbatches=8, steps=4, jitter=0.0, transfer_ms=0.0, weight=(1, 1, 1, 1.5)
    )
    found = figures(simulate_pipeline(scenario))
    # All stages at the mean weight, then the last one alone at it.
    mean = (3 + 1.5) / 4
    tail = 2.0 + 3.0 + 0.05
    ideal = (8 + 3) * 12 * mean + tail
    # 1F1B: the heaviest stage is never idle; the rest of the first microbatch's way is added.
    took = 8 * 12 * 1.5 + 3 * 12 + tail
    repaired = 8 * 12 * mean + 3 * 12 + tail
    assert found.slowdown == pytest.approx(took / ideal, rel=0.005)
    assert found.stage_share(3) == pytest.approx((took - repaired) / (took - ideal), rel=0.01)
    assert found.even_ratio == pytest.approx(1 - ideal / took, rel=0.01)
    assert found.stage_slowdowns.argmax() == 3


def test_the_figures_are_in_the_report_and_live_input_gives_the_same() -> None:
    job = simulate_pipeline(Pipeline(steps=50, weight=(1, 1, 1, 1.4)))
    whole = feed(job)[0].report().what_if
    bit_by_bit, _ = feed(job, chunk_rows=37)
    assert whole is not None
    assert bit_by_bit.report().what_if == whole
    assert whole["steps"] == 45
    assert abs(whole["replay_error"]) < 0.001
    assert [stage["ranks"] for stage in whole["stages"]] == ["0,4", "1,5", "2,6", "3,7"]
    assert whole["m_s"] == whole["stages"][3]["share"] > 0.9


def test_asking_again_and_again_does_not_change_the_answer() -> None:
    job = simulate_pipeline(Pipeline(steps=80, slow={5: 1.3}))
    once, _ = feed(job)
    asked = JobAnalysis(8)
    for name, ranks in job.groups:
        asked.declare_group(Group(name=name, ranks=ranks))
    size = max(map(len, job.rows))
    for begin in range(0, size, 50):
        for rank, rows in enumerate(job.rows):
            asked.add(records_from_rows(rank, rows[begin : begin + 50]))
        asked.advance()
        asked.report()
    for rank in range(8):
        once.declare_rank(rank)
    asked.finish()
    assert asked.report().what_if == once.report().what_if


def test_equal_ranks_have_no_loss_and_no_shares() -> None:
    report = analyse(Scenario(steps=40, jitter=0.0, common_jitter=0.0)).report()
    assert report.what_if is not None
    assert report.what_if["slowdown"] == pytest.approx(1.0, abs=1e-3)
    assert (report.what_if["m_w"], report.what_if["m_s"]) == (None, None)


@pytest.mark.parametrize("ranks", [1, 2])
def test_very_small_jobs_are_replayed_without_a_nan(ranks: int) -> None:
    report = analyse(Scenario(data_parallel=ranks, steps=20)).report()
    assert report.what_if is not None
    assert np.isfinite(report.what_if["slowdown"])
