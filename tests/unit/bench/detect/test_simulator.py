"""The simulated job does what the closed forms say, and its truth is right."""

from __future__ import annotations

from dataclasses import replace
from math import exp, gamma, lgamma

import numpy as np
import pytest

from paceline.vocabulary import P2P_OPS, Op, Phase, RecordKind
from paceline_service.bench.detect.simulate.faults import Control, Fault
from paceline_service.bench.detect.simulate.job import Simulation
from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.noise import Noise, pareto_shape
from paceline_service.bench.detect.simulate.pipeline import schedule
from paceline_service.bench.detect.simulate.spec import JobSpec, Link

LAYOUTS = (
    Layout(dp=8),
    Layout(dp=4, tp=2, node_size=4),
    Layout(dp=2, pp=4, node_size=2),
    Layout(dp=2, tp=2, pp=2, node_size=4),
    Layout(dp=8, expert=4),
    Layout(dp=8, shard=4, node_size=4),
)


def barrier_job(ranks: int, noise: Noise, steps: int = 6000) -> JobSpec:
    """Return a job that computes a second and meets at one barrier that costs nothing."""
    return JobSpec(
        layout=Layout(dp=ranks), steps=steps, seed=5, layers=1, buckets=1,
        noise=replace(noise, spread=0.0, common=0.0, operation=0.0),
        phase_s={Phase.BACKWARD: 1.0}, release_noise_s=0.0, transfer_jitter=0.0,
        links={"dp": Link(alpha_s=0.0, bytes_per_s=1e30)},
    )  # fmt: skip


def tax(spec: JobSpec) -> float:
    """Return how much longer a step is than the mean own time of a rank."""
    chunks = list(Simulation(spec, emit=False).chunks())
    steps = np.concatenate([chunk.step_ns for chunk in chunks])
    own = np.concatenate([chunk.self_ns for chunk in chunks])
    return float(steps.mean() / own.mean() - 1)


@pytest.mark.parametrize(("ranks", "expected"), [(8, 1.424), (64, 2.344)])
def test_normal_jitter_costs_a_barrier_what_the_largest_of_k_normals_says(
    ranks: int, expected: float
) -> None:
    assert tax(barrier_job(ranks, Noise(jitter=0.05))) / 0.05 == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("ranks", "expected"), [(8, 0.0729), (64, 0.1231)])
def test_lognormal_jitter_costs_what_the_guide_tabulates(ranks: int, expected: float) -> None:
    noise = Noise(jitter=0.05, tail="lognormal")
    assert tax(barrier_job(ranks, noise)) == pytest.approx(expected, rel=0.03)


def test_exponential_jitter_costs_the_harmonic_number() -> None:
    ranks, cv = 16, 0.1
    harmonic = sum(1 / k for k in range(1, ranks + 1))
    measured = tax(barrier_job(ranks, Noise(jitter=cv, tail="exponential")))
    assert measured == pytest.approx(cv * (harmonic - 1), rel=0.03)


def test_pareto_jitter_costs_what_its_largest_value_says() -> None:
    ranks, cv = 16, 0.1
    a = pareto_shape(cv)
    least = (a - 1) / a
    largest = least * exp(lgamma(ranks + 1) - lgamma(ranks + 1 - 1 / a)) * gamma(1 - 1 / a)
    measured = tax(barrier_job(ranks, Noise(jitter=cv, tail="pareto")))
    assert measured == pytest.approx(largest - 1, rel=0.03)


def test_pauses_that_are_not_planned_together_cost_as_if_any_rank_paused() -> None:
    ranks, p, length = 16, 0.02, 0.5
    noise = Noise(jitter=0.0, pause_probability=p, pause_ratio=length)
    expected = (1 + length * (1 - (1 - p) ** ranks)) / (1 + length * p) - 1
    assert tax(barrier_job(ranks, noise)) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("tail", ["normal", "student3", "lognormal", "skewed", "spikes"])
def test_jitter_has_the_stated_size_and_autocorrelation(tail: str) -> None:
    spec = barrier_job(64, Noise(jitter=0.05, tail=tail, autocorrelation=0.2), steps=3000)
    own = np.concatenate([chunk.self_ns for chunk in Simulation(spec, emit=False).chunks()])
    relative = own / own.mean() - 1
    # A t with 3 degrees of freedom has no fourth moment: its sample variance is rough.
    assert relative.std() == pytest.approx(0.05, rel=0.1 if tail == "student3" else 0.03)
    correlation = np.corrcoef(relative[:-1].ravel(), relative[1:].ravel())[0, 1]
    assert correlation == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_every_operation_is_recorded_by_all_its_members_in_one_order(layout: Layout) -> None:
    simulation = Simulation(JobSpec(layout=layout, steps=3, micro_batches=4))
    (chunk,) = simulation.chunks(3)
    c = chunk.columns
    collective = c["kind"] == RecordKind.COLLECTIVE
    p2p = np.isin(c["code"], [int(op) for op in P2P_OPS]) & collective
    seen: dict[tuple[int, int], list[int]] = {}
    for row in np.flatnonzero(collective & ~p2p):
        seen.setdefault((int(c["group"][row]), int(c["seq"][row])), []).append(int(c["rank"][row]))
    assert seen
    for (group, _), ranks in seen.items():
        assert sorted(ranks) == sorted(simulation.groups[group].ranks)
    sends = {(int(c["rank"][r]), int(c["peer"][r]), int(c["seq"][r]))
             for r in np.flatnonzero(p2p & (c["code"] == Op.SEND))}  # fmt: skip
    receives = {(int(c["peer"][r]), int(c["rank"][r]), int(c["seq"][r]))
                for r in np.flatnonzero(p2p & (c["code"] == Op.RECV))}  # fmt: skip
    assert sends == receives
    assert bool(sends) == (layout.pp > 1)
    assert (c["end_ns"] >= c["start_ns"]).all()


def test_no_rank_leaves_a_collective_before_the_last_one_came() -> None:
    spec = JobSpec(layout=Layout(dp=8), steps=20, noise=Noise(jitter=0.05))
    simulation = Simulation(spec)
    clocks = simulation.engine.clocks
    (chunk,) = simulation.chunks(20)
    c = chunk.columns
    rows = np.flatnonzero(c["kind"] == RecordKind.COLLECTIVE)
    rank = c["rank"][rows]
    true = {
        name: (c[name][rows] - clocks.offset_ns[rank]) / (1 + clocks.drift[rank])
        for name in ("start_ns", "end_ns")
    }
    for seq in np.unique(c["seq"][rows]):
        same = c["seq"][rows] == seq
        assert true["end_ns"][same].min() >= true["start_ns"][same].max()


def test_the_same_seed_gives_the_same_records_and_another_one_others() -> None:
    def columns(seed: int) -> list[np.ndarray]:
        spec = JobSpec(layout=Layout(dp=2, tp=2, pp=2), steps=5, seed=seed)
        (chunk,) = Simulation(spec).chunks()
        return list(chunk.columns.values())

    first, again, other = columns(1), columns(1), columns(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other, strict=True))


def test_records_do_not_depend_on_how_many_steps_are_asked_for_at_once() -> None:
    spec = JobSpec(layout=Layout(dp=4, tp=2), steps=12)
    ends = [
        np.sort(np.concatenate([chunk.columns["end_ns"] for chunk in Simulation(spec).chunks(n)]))
        for n in (1, 5, 12)
    ]
    assert np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[0], ends[2])


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_a_fault_changes_nothing_before_its_first_step_and_only_adds_time_after_it(
    layout: Layout,
) -> None:
    fault = Fault(kind="rank", ranks=(3,), slowdown=0.5, first=10)
    clean = JobSpec(layout=layout, steps=30)
    before = Simulation(clean, emit=False).step_times_ns()
    after = Simulation(replace(clean, faults=(fault,)), emit=False).step_times_ns()
    assert np.array_equal(before[:10], after[:10])
    assert (after[11:] > before[11:]).all()


@pytest.mark.parametrize("cause", ["compute", "input", "host", "gpu_throttle", "gc"])
def test_a_rank_slow_by_a_half_takes_half_as_long_again_whatever_the_cause(cause: str) -> None:
    fault = Fault(kind="rank", ranks=(2,), slowdown=0.5, cause=cause, first=1)
    spec = JobSpec(
        layout=Layout(dp=4), steps=2, faults=(fault,),
        noise=Noise(jitter=0.0, spread=0.0, common=0.0),
    )  # fmt: skip
    (chunk,) = Simulation(spec).chunks(2)
    assert chunk.self_ns[1] / chunk.self_ns[0] == pytest.approx([1, 1, 1.5, 1])
    gc = chunk.columns["rank"][
        (chunk.columns["kind"] == RecordKind.PHASE) & (chunk.columns["code"] == Phase.GC)
    ]
    assert set(gc) == ({2} if cause == "gc" else set())


def test_a_fault_creeps_up_and_comes_in_periods() -> None:
    creeping = Fault(kind="rank", slowdown=0.4, first=10, ramp_steps=4, last=20)
    assert [creeping.size_at(step) for step in (9, 10, 11, 13, 20, 21)] == pytest.approx(
        [0, 0.1, 0.2, 0.4, 0.4, 0]
    )
    periodic = Fault(kind="rank", slowdown=1.0, first=5, period_steps=3)
    assert [step for step in range(12) if periodic.size_at(step)] == [5, 8, 11]


def test_a_slow_network_card_slows_only_the_groups_that_leave_its_node() -> None:
    layout = Layout(dp=16, shard=8, node_size=4)
    fault = Fault(kind="nic", nodes=(1,), slowdown=1.0, cause="network")
    spec = JobSpec(layout=layout, steps=1, faults=(fault,), transfer_jitter=0.0)
    engine = Simulation(spec).engine
    engine.begin(0)
    groups = engine.groups["shard"]
    slow = engine.transfer_ns("shard", 10**9, groups)
    assert slow[0] == pytest.approx(2 * slow[1])
    assert set(map(int, groups.nodes[0])) == {0, 1}


def test_a_throttled_gpu_says_so_and_a_slow_one_does_not() -> None:
    faults = (
        Fault(kind="rank", ranks=(1,), slowdown=0.5, cause="gpu_throttle"),
        Fault(kind="rank", ranks=(2,), slowdown=0.5, cause="compute"),
    )
    spec = JobSpec(layout=Layout(dp=4), steps=1, telemetry=True, faults=faults)
    (chunk,) = Simulation(spec).chunks()
    of_rank = {sample.rank: sample.values for sample in chunk.samples}
    assert of_rank[1]["throttle_reasons"] == ["hw_thermal_slowdown"]
    assert of_rank[2]["throttle_reasons"] == of_rank[0]["throttle_reasons"] == []
    assert of_rank[1]["sm_clock_hz"] < 0.7 * of_rank[2]["sm_clock_hz"]


def test_a_job_that_is_resized_forms_its_groups_anew_and_says_who_left() -> None:
    spec = JobSpec(layout=Layout(dp=8), steps=12, control=Control(resize=((4, 6), (8, 8))))
    simulation = Simulation(spec)
    chunks = list(simulation.chunks(16))
    assert [(chunk.first_step, chunk.left) for chunk in chunks] == [(0, ()), (4, (6, 7)), (8, ())]
    assert [set(map(int, chunk.columns["rank"])) for chunk in chunks] == [
        set(range(8)), set(range(6)), set(range(8)),
    ]  # fmt: skip
    assert [(len(info.ranks), info.epoch) for info in simulation.groups] == [(8, 0), (6, 1), (8, 2)]


@pytest.mark.parametrize("layout", LAYOUTS[1:4], ids=lambda layout: layout.name)
def test_every_rank_of_a_job_is_held_up_by_a_slow_one(layout: Layout) -> None:
    fault = Fault(kind="rank", ranks=(3,), slowdown=0.5, cause="host")
    simulation = Simulation(JobSpec(layout=layout, steps=20, faults=(fault,)), emit=False)
    simulation.step_times_ns()
    lost_ns = 20 * 0.5e9
    assert np.ptp(simulation.engine.now) < lost_ns / 10


def test_a_pipeline_runs_one_forward_one_backward() -> None:
    order = schedule(4, 8)
    assert len(set(order)) == len(order) == 2 * 4 * 8
    last = [(backward, m) for stage, backward, m in order if stage == 3]
    assert last[:4] == [(False, 0), (True, 0), (False, 1), (True, 1)]
    first = [(backward, m) for stage, backward, m in order if stage == 0]
    assert first[:5] == [(False, 0), (False, 1), (False, 2), (False, 3), (True, 0)]
