"""The closed forms of the bubble, against schedules that are played operation by operation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.errors import ConfigError
from paceline_service.analysis.costs.pipeline import Pipeline, Schedule

FORWARD_S, BACKWARD_S = 1.0, 2.0
"""Of a micro-batch on a stage."""
Work = tuple[bool, int, int]
"""Forward or not, micro-batch, piece of the model on the rank."""


def order(pipeline: Pipeline, rank: int) -> list[Work]:
    """Return what a rank does, in order."""
    p, m, v = pipeline.stages, pipeline.micro_batches, pipeline.virtual_stages
    forward = [(True, i, 0) for i in range(m)]
    backward = [(False, i, 0) for i in range(m)]
    ahead = min(p - rank - 1, m)
    if pipeline.schedule is Schedule.GPIPE:
        return forward + backward
    if pipeline.schedule is Schedule.INTERLEAVED:
        places = [(k // (p * v) * p + k % p, k % (p * v) // p) for k in range(m * v)]
        forward = [(True, i, piece) for i, piece in places]
        backward = [(False, i, v - 1 - piece) for i, piece in places]
        ahead = min(2 * (p - rank - 1) + (v - 1) * p, m * v)
    done = forward[:ahead]
    for one in range(len(forward) - ahead):
        done += [forward[ahead + one], backward[one]]
    return done + backward[len(forward) - ahead :]


def play(pipeline: Pipeline, hop_s: float = 0.0, factors: Sequence[float] = ()) -> float:
    """Return when the last rank is done; ``factors`` are how much more work each rank has."""
    p, v = pipeline.stages, pipeline.virtual_stages
    todo = [order(pipeline, rank) for rank in range(p)]
    at, free_s, end_s = [0] * p, [0.0] * p, dict[tuple[Work, int], float]()
    while any(at[rank] < len(todo[rank]) for rank in range(p)):
        moved = False
        for rank in range(p):
            while at[rank] < len(todo[rank]):
                work = todo[rank][at[rank]]
                ready = after(work, rank, p, v, hop_s, end_s)
                if ready is None:
                    break
                took = (FORWARD_S if work[0] else BACKWARD_S) / v
                took *= factors[rank] if factors else 1.0
                free_s[rank] = end_s[work, rank] = max(ready, free_s[rank]) + took
                at[rank] += 1
                moved = True
        assert moved, "the schedule waits for itself"
    return max(free_s)


def after(
    work: Work, rank: int, p: int, v: int, hop_s: float, end_s: dict[tuple[Work, int], float]
) -> float | None:
    """Return when what ``work`` needs is there, None if that is not known yet."""
    forward, i, piece = work
    last = rank == p - 1 and piece == v - 1
    if forward:
        if rank == 0 and piece == 0:
            return 0.0
        before = ((True, i, piece), rank - 1) if rank else ((True, i, piece - 1), p - 1)
    elif last:
        return end_s.get(((True, i, piece), rank))
    else:
        before = ((False, i, piece), rank + 1) if rank < p - 1 else ((False, i, piece + 1), 0)
    return end_s[before] + hop_s if before in end_s else None


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("micro_batches", [8, 16, 64])
@pytest.mark.parametrize(
    ("schedule", "virtual"),
    [
        (Schedule.GPIPE, 1), (Schedule.ONE_F_ONE_B, 1), (Schedule.INTERLEAVED, 2),
        (Schedule.INTERLEAVED, 4),
    ],
)  # fmt: skip
def test_the_bubble_is_that_of_a_schedule_played_step_by_step(
    stages: int, micro_batches: int, schedule: Schedule, virtual: int
) -> None:
    pipeline = Pipeline(
        stages=stages, micro_batches=micro_batches, virtual_stages=virtual, schedule=schedule
    )
    ideal = micro_batches * (FORWARD_S + BACKWARD_S)
    took = play(pipeline)
    assert took == pytest.approx(ideal * (1 + pipeline.bubble_of_ideal))
    assert (took - ideal) / took == pytest.approx(pipeline.bubble_of_total)


@pytest.mark.parametrize(
    ("schedule", "virtual", "stages", "micro_batches"),
    [
        *((Schedule.GPIPE, 1, p, m) for p in (2, 3, 8) for m in (1, 5, 24)),
        *((Schedule.ONE_F_ONE_B, 1, p, m) for p in (2, 3, 5, 8) for m in (1, 2, 7, 8, 24, 33)),
        *((Schedule.INTERLEAVED, v, p, k * p) for v in (2, 4) for p in (2, 3, 8) for k in (1, 4)),
    ],
)
def test_sends_for_which_a_step_waits_are_those_of_a_schedule_played_step_by_step(
    schedule: Schedule, virtual: int, stages: int, micro_batches: int
) -> None:
    pipeline = Pipeline(
        stages=stages, micro_batches=micro_batches, virtual_stages=virtual, schedule=schedule
    )
    hop_s = 0.001
    waited_s = play(pipeline, hop_s) - play(pipeline)
    assert waited_s / hop_s == pytest.approx(pipeline.exposed_hops)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B])
@pytest.mark.parametrize("slow", [0, 3, 7])
def test_every_micro_batch_but_one_waits_for_the_slowest_stage(
    schedule: Schedule, slow: int
) -> None:
    factors = [1.0 + (rank == slow) for rank in range(8)]
    mean = sum(factors) / 8
    pipeline = Pipeline(stages=8, micro_batches=16, schedule=schedule, slowest_stage_ratio=2 / mean)
    ideal_s = 16 * (FORWARD_S + BACKWARD_S) * mean
    told_s = ideal_s * (1 + pipeline.bubble_of_ideal + pipeline.imbalance_of_ideal)
    took_s = play(pipeline, factors=factors)
    if schedule is Schedule.GPIPE or slow == 7:
        assert took_s == pytest.approx(told_s)
    assert 0.85 * told_s < took_s < told_s * (1 + 1e-9)


def test_a_real_pipeline_of_eight_stages_takes_what_its_stages_say() -> None:
    # Primus, 8 stages, 16 micro-batches, 1F1B, iteration 10: forward and backward of a stage, all
    # micro-batches together, and the step, as its ranks logged them.
    work_ms = [2064, 2040, 2066, 2090, 2091, 2112, 2055, 2268]
    mean_ms = sum(work_ms) / 8
    pipeline = Pipeline(stages=8, micro_batches=16, slowest_stage_ratio=max(work_ms) / mean_ms)
    told_ms = mean_ms * (1 + pipeline.bubble_of_ideal + pipeline.imbalance_of_ideal)
    assert told_ms == pytest.approx(3241, rel=0.025)


def test_eight_stages_and_thirty_two_micro_batches_idle_for_seven_of_thirty_nine_parts() -> None:
    pipeline = Pipeline(stages=8, micro_batches=32)
    assert pipeline.bubble_of_ideal == pytest.approx(7 / 32)
    assert pipeline.bubble_of_total == pytest.approx(7 / 39)


def test_a_pipeline_of_one_stage_has_no_bubble_and_holds_one_micro_batch() -> None:
    alone = Pipeline(micro_batches=16)
    assert (alone.bubble_of_ideal, alone.held_micro_batches, alone.hops) == (0, 1, 0)


def test_schedules_that_do_not_exist_are_refused() -> None:
    interleaved = Schedule.INTERLEAVED
    with pytest.raises(ConfigError, match="multiples of --pipeline: 6 is none of 4"):
        Pipeline(stages=4, micro_batches=6, virtual_stages=2, schedule=interleaved)
    with pytest.raises(ConfigError, match="needs --virtual-stages of at least 2"):
        Pipeline(stages=4, micro_batches=8, schedule=interleaved)
    with pytest.raises(ConfigError, match="only --schedule interleaved has"):
        Pipeline(stages=4, micro_batches=8, virtual_stages=2)
    with pytest.raises(ConfigError, match="--pipeline is 0"):
        Pipeline(stages=0)
