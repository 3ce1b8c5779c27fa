from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from paceline.vocabulary import EXCLUSIVE_PHASES, Op, Phase, RecordKind
from tests.integration.hooks.kit import Finished, Ring, run_ranks

pytestmark = pytest.mark.integration
SLEEP_NS = 100e6
PLACES = ("input", "forward", "loss", "backward", "optimizer", "host")
PHASE_OF = {
    "input": Phase.INPUT,
    "forward": Phase.FORWARD,
    "loss": Phase.FORWARD,
    "backward": Phase.BACKWARD,
    "optimizer": Phase.OPTIMIZER,
    "host": Phase.HOST,
}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory, hooks: Mapping[str, str]) -> Finished:
    finished = run_ranks("training.py", tmp_path_factory.mktemp("training"), env=hooks)
    assert finished.returncodes == [0, 0], "\n".join(finished.output)
    return finished


@pytest.fixture
def ring(job: Finished) -> Ring:
    return job.rings[0]


@pytest.fixture
def first_step(job: Finished) -> dict[str, int]:
    begins: dict[str, int] = job.said[0]
    return begins


def steps_of(first_step: dict[str, int], name: str) -> range:
    names = list(first_step)
    return range(first_step[name], first_step[names[names.index(name) + 1]])


def host_ns(ring: Ring, step: int) -> int:
    record = next(r for r in ring.steps() if r.step == step)
    covered = sum(ring.phase_ns(phase, step) for phase in EXCLUSIVE_PHASES)
    return record.end_ns - record.start_ns - covered


def test_no_hook_failed(job: Finished) -> None:
    assert [(ring.errors, ring.closed) for ring in job.rings.values()] == [(0, True)] * 2


@pytest.mark.parametrize("model", ["ddp", "fsdp2"])
@pytest.mark.parametrize("place", PLACES)
def test_a_sleep_is_found_in_the_phase_where_it_was_put(
    ring: Ring, first_step: dict[str, int], model: str, place: str
) -> None:
    step = first_step[model] + 2 + PLACES.index(place)
    spent_ns = {phase: ring.phase_ns(phase, step) for phase in EXCLUSIVE_PHASES if phase}
    spent_ns[Phase.HOST] = host_ns(ring, step)
    assert spent_ns[PHASE_OF[place]] >= SLEEP_NS
    # Both ranks sleep, so nobody waits; what is left is small work on a machine that may be busy.
    assert max(spent_ns, key=spent_ns.__getitem__) == PHASE_OF[place]


def test_steps_follow_each_other_without_gaps(job: Finished) -> None:
    for ring in job.rings.values():
        steps = ring.steps()
        assert [r.step for r in steps] == list(range(len(steps)))
        for before, after in pairwise(steps):
            assert after.start_ns == before.end_ns


def test_phases_of_a_rank_never_overlap_and_lie_in_their_step(job: Finished) -> None:
    for ring in job.rings.values():
        phases = [
            r for r in ring.records if r.kind == RecordKind.PHASE and r.code in EXCLUSIVE_PHASES
        ]
        for before, after in pairwise(phases):
            assert before.end_ns <= after.start_ns
        limits = {r.step: r for r in ring.steps()}
        for r in phases:
            if r.step in limits:
                assert limits[r.step].start_ns <= r.start_ns < r.end_ns <= limits[r.step].end_ns


def test_ranks_agree_on_steps_and_on_what_they_issued_in_them(job: Finished) -> None:
    def issued(ring: Ring) -> list[tuple[int, ...]]:
        return sorted((r.group, r.seq, r.step, r.code, r.payload_bytes) for r in ring.collectives())

    assert job.said[0] == job.said[1]
    assert issued(job.rings[0]) == issued(job.rings[1])


def test_gradients_of_ddp_are_reduced_once_a_step(ring: Ring, first_step: dict[str, int]) -> None:
    gradient_bytes = 3 * (8 * 8 + 8) * 4
    for step in steps_of(first_step, "ddp")[2:]:
        reduced = [r for r in ring.collectives() if r.step == step and r.code == Op.ALL_REDUCE]
        assert sum(r.payload_bytes for r in reduced) == gradient_bytes
        backward = ring.phases(Phase.BACKWARD, step)[0]
        for r in reduced:
            assert backward.start_ns <= r.start_ns < backward.end_ns
            # Released by the reducer in C++: seen when backward returns, not a step later.
            assert r.end_ns - backward.end_ns < SLEEP_NS / 2
        # Nothing is left to compute when the last bucket is issued: from then on DDP waits.
        newest = max(reduced, key=lambda r: r.start_ns)
        assert [r.join_ns for r in reduced if r.join_ns] == [newest.start_ns]


def test_fsdp2_gathers_parameters_and_scatters_gradients(
    ring: Ring, first_step: dict[str, int]
) -> None:
    for step in steps_of(first_step, "fsdp2")[2:]:
        ops = [Op(r.code) for r in ring.collectives() if r.step == step]
        assert ops.count(Op.ALL_GATHER) >= 3
        assert ops.count(Op.REDUCE_SCATTER) == 3


def test_gradient_accumulation_is_one_step_with_several_phases(
    ring: Ring, first_step: dict[str, int]
) -> None:
    steps = steps_of(first_step, "accumulation")
    assert len(steps) == 2
    for step in steps:
        for phase in (Phase.INPUT, Phase.FORWARD, Phase.BACKWARD):
            assert len(ring.phases(phase, step)) == 3
        assert len(ring.phases(Phase.OPTIMIZER, step)) == 1


def test_two_optimizers_in_a_row_are_one_step(ring: Ring, first_step: dict[str, int]) -> None:
    steps = steps_of(first_step, "two_optimizers")
    assert len(steps) == 3
    assert [len(ring.phases(Phase.OPTIMIZER, step)) for step in steps] == [2, 2, 2]


def test_a_closure_is_forward_and_backward_and_not_optimizer(
    ring: Ring, first_step: dict[str, int]
) -> None:
    steps = steps_of(first_step, "closure")
    assert len(steps) == 2
    for step in steps:
        assert len(ring.phases(Phase.FORWARD, step)) >= 1
        assert len(ring.phases(Phase.BACKWARD, step)) == 1
        assert len(ring.phases(Phase.OPTIMIZER, step)) == 2


def test_optimizers_that_step_within_backward_make_one_step_of_it(
    ring: Ring, first_step: dict[str, int]
) -> None:
    steps = steps_of(first_step, "optimizer_in_backward")
    assert len(steps) == 2
    for step in steps:
        assert len(ring.phases(Phase.BACKWARD, step)) == 1
        assert ring.phases(Phase.OPTIMIZER, step) == []


def test_a_step_that_the_gradient_scaler_skips_is_a_step(first_step: dict[str, int]) -> None:
    assert len(steps_of(first_step, "scaler_skips")) == 2


def test_evaluation_belongs_to_the_step_that_follows_it(
    ring: Ring, first_step: dict[str, int]
) -> None:
    (step,) = steps_of(first_step, "evaluation")
    assert len(ring.phases(Phase.FORWARD, step)) == 4
    assert len(ring.phases(Phase.BACKWARD, step)) == 1


def test_forked_loader_processes_write_nothing(job: Finished, first_step: dict[str, int]) -> None:
    assert len(steps_of(first_step, "forked_loader")) == 4
    assert len(job.rings) == 2


def test_a_loop_can_mark_its_own_phases_and_steps(ring: Ring, first_step: dict[str, int]) -> None:
    steps = steps_of(first_step, "by_hand")
    assert len(steps) == 2
    assert all(ring.phase_ns(Phase.INPUT, step) >= SLEEP_NS for step in steps)
