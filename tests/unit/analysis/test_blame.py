"""Blame goes to the culprit in nested and pipelined groups, and nothing of it gets lost."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paceline.vocabulary import Op, Phase, RecordKind
from paceline_service.analysis.blame.levels import find_levels
from paceline_service.analysis.job import JobAnalysis
from paceline_service.analysis.options import Options
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.feed import feed
from tests.simulator.hybrid import Hybrid, simulate_hybrid

MS = 1_000_000
LAYOUTS = {
    "TP x DP": Hybrid(tensor=4, data=4),
    "PP x DP": Hybrid(data=4, stages=4),
    "PP x TP": Hybrid(tensor=4, stages=2),
    "TP x DP x PP": Hybrid(tensor=2, data=2, stages=2),
    "deep pipeline, 2 replicas": Hybrid(data=2, stages=4, micro_batches=6),
}


def blamed(job: Hybrid) -> np.ndarray:
    """Return (R,) blamed wait of a simulated job, ns."""
    analysis, _ = feed(simulate_hybrid(job))
    return np.array([row.blamed_wait_ns for row in analysis.report().ranks])


def sums(analysis: JobAnalysis) -> tuple[int, int, float]:
    rows = analysis.report().ranks
    waited, charged = sum(r.wait_ns for r in rows), sum(r.blamed_wait_ns for r in rows)
    return waited, charged, analysis.unattributed_wait_ns


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("phase", [Phase.FORWARD, Phase.BACKWARD])
@pytest.mark.parametrize("seed", [1, 2])
def test_the_culprit_and_no_victim_carries_the_largest_blame(
    layout: str, phase: Phase, seed: int
) -> None:
    job = LAYOUTS[layout]
    slow = int(np.random.default_rng(seed).integers(job.world_size))
    shared = bool(seed % 2)
    charged = blamed(
        replace(job, slow=slow, phase=phase, extra_ms=8.0, seed=seed, shared_clock=shared)
    )
    assert int(np.argmax(charged)) == slow
    assert charged[slow] > 4 * np.delete(charged, slow).max()


def test_the_last_arrivers_of_a_pipeline_are_mostly_its_victims() -> None:
    """What blame is for: the rank that is waited for most is another than the slow one."""
    wrong = 0
    for seed in range(4):
        slow = int(np.random.default_rng(seed).integers(8))
        job = Hybrid(data=2, stages=4, slow=slow, extra_ms=8.0, seed=seed, steps=12)
        rows = feed(simulate_hybrid(job))[0].report().ranks
        wrong += max(rows, key=lambda row: row.caused_wait_ns).rank != slow
        assert max(rows, key=lambda row: row.blamed_wait_ns).rank == slow
    assert wrong >= 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_wait_is_charged_once_or_to_nobody_to_the_nanosecond(layout: str) -> None:
    job = replace(LAYOUTS[layout], slow=1, extra_ms=8.0, steps=12)
    waited, charged, unattributed = sums(feed(simulate_hybrid(job))[0])
    assert charged + unattributed == pytest.approx(waited, abs=job.world_size)


def test_a_fault_at_the_end_of_a_step_is_charged_through_the_waits_of_the_next() -> None:
    job = Hybrid(tensor=4, data=4, slow=6, phase=Phase.OPTIMIZER, extra_ms=8.0)
    charged = blamed(job)
    assert int(np.argmax(charged)) == 6
    assert charged[6] > 8 * np.delete(charged, 6).max()


def test_a_phase_that_only_the_step_before_knew_is_charged_for_the_waits_of_the_next() -> None:
    def collective(seq: int, start_ms: int, end_ms: int) -> tuple[int, ...]:
        start = start_ms * MS
        return (int(RecordKind.COLLECTIVE), int(Op.ALL_REDUCE), 0, seq, seq, -1, 1 << 20,
                start, end_ms * MS, start + 1000, start, 0)  # fmt: skip

    def span(kind: RecordKind, code: int, step: int, first: int, last: int) -> tuple[int, ...]:
        return (int(kind), code, 0, 0, step, -1, 0, first * MS, last * MS, 0, 0, 0)

    job = JobAnalysis(2, Options(settling_steps=0))
    job.declare_group(Group(name="dp", ranks=(0, 1)))
    for rank in range(2):
        job.declare_rank(rank, clock_domain="one")
    ends_ms, arrives_ms = (110, 291), (120, 300)
    for rank in range(2):
        rows = [collective(0, 100, 101)]
        if rank:
            rows.append(span(RecordKind.PHASE, Phase.CHECKPOINT, 0, 102, 290))
        rows += [
            span(RecordKind.STEP, 0, 0, 1, ends_ms[rank]),
            collective(1, arrives_ms[rank], 301),
            span(RecordKind.STEP, 0, 1, ends_ms[rank], 310),
        ]
        job.add(records_from_rows(rank, rows))
    job.finish()
    waited_ns = job.report().ranks[0].wait_ns
    assert waited_ns > 150 * MS
    assert job.report().ranks[1].blamed_wait_ns > 0.9 * waited_ns


def test_the_bubbles_of_a_healthy_pipeline_are_nobodys_fault() -> None:
    analysis, _ = feed(simulate_hybrid(Hybrid(data=4, stages=4)))
    waited, charged, unattributed = sums(analysis)
    assert charged < 0.05 * waited
    assert unattributed > 0.95 * waited


def test_a_heavier_stage_is_blamed_on_none_of_its_ranks() -> None:
    stages = (0.0, 0.0, 0.0, 4.0)
    charged = blamed(Hybrid(data=4, stages=4, stage_ms=stages))
    slow = blamed(Hybrid(data=4, stages=4, stage_ms=stages, slow=13, extra_ms=8.0))
    assert slow[13] > 5 * charged.max()


def test_waits_for_ranks_that_were_held_up_by_transfers_accuse_no_rank() -> None:
    job = simulate_hybrid(Hybrid(tensor=2, data=4, slow_group="tp1", extra_ms=3.0))
    analysis, _ = feed(job)
    waited, charged, _ = sums(analysis)
    assert charged < 0.15 * waited
    healthy = sums(feed(simulate_hybrid(Hybrid(tensor=2, data=4)))[0])
    assert waited > 3 * healthy[0]


def test_ranks_that_contradict_each_other_about_the_order_are_charged_all_the_same() -> None:
    """Rank 0 tells that it joined A before B, rank 1 that it joined B before A."""
    rank = np.array([0, 0, 1, 1])
    levels = find_levels(
        np.array([0, 1]), waiter=np.array([0, 2]), first=np.array([0, 1]), count=np.array([1, 1]),
        leader=np.array([3, 1]), begin=np.array([2, 0]), end=np.array([3, 1]), rank=rank,
    )  # fmt: skip
    assert sorted(int(i) for level in levels for i in level.instances) == [0, 1]


def test_what_passes_waits_on_is_charged_before_what_receives_them() -> None:
    """On rank 1 instance 1 comes after instance 0, for which the rank had waited."""
    levels = find_levels(
        np.array([0, 1]), waiter=np.array([2, 4]), first=np.array([0, 1]), count=np.array([1, 1]),
        leader=np.array([1, 3]), begin=np.array([0, 2]), end=np.array([1, 3]),
        rank=np.array([0, 0, 1, 1, 2]),
    )  # fmt: skip
    assert [level.instances.tolist() for level in levels] == [[1], [0]]
    assert levels[0].targets.tolist() == [2]
