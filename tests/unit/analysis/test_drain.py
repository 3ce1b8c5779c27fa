from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Phase
from paceline_service.analysis.options import Options
from paceline_service.analysis.whatif.drain import TOP_RANKS, DrainWatch, History
from tests.simulator.feed import analyse
from tests.simulator.job import Fault, Scenario
from tests.unit.analysis.steps import judged_step


def watch_of(self_ns: list[list[int]], nodes: dict[int, str] | None = None, **options: int) -> (
    DrainWatch
):  # fmt: skip
    watch = DrainWatch(len(self_ns[0]), Options(settling_steps=0, **options), nodes or {})
    for step, own in enumerate(self_ns):
        watch.see(judged_step(step, own))
    return watch


def test_leaving_out_the_slowest_rank_gives_back_its_lead_over_the_second() -> None:
    drain = watch_of([[10, 30, 20], [10, 40, 15], [50, 20, 20]]).drain()
    assert drain.ranks == {1: (30 - 20) + (40 - 15), 0: 50 - 20}
    assert (drain.steps, drain.first_step, drain.last_step) == (3, 0, 2)


def test_a_node_gives_back_the_lead_of_all_its_ranks_over_the_others() -> None:
    nodes = {0: "a", 1: "a", 2: "b", 3: "b"}
    drain = watch_of([[100, 90, 40, 30], [10, 20, 70, 60]], nodes).drain()
    assert drain.nodes == {"a": 100 - 40, "b": 70 - 20}


def test_single_ranks_in_the_history_agree_with_the_exact_sums() -> None:
    rng = np.random.default_rng(3)
    steps = rng.integers(1, 1000, size=(50, 40)).tolist()
    drain = watch_of(steps).drain()
    assert drain.history is not None
    for rank in range(40):
        assert drain.history.without([rank]).recoverable_ns == drain.ranks.get(rank, 0)


def test_any_set_of_ranks_gives_back_what_a_search_over_all_ranks_says() -> None:
    rng = np.random.default_rng(4)
    steps = rng.integers(1, 1000, size=(30, 40))
    drain = watch_of(steps.tolist()).drain()
    assert drain.history is not None
    for size in (2, 5, TOP_RANKS - 1):
        out = rng.choice(40, size=size, replace=False)
        left = np.delete(steps, out, axis=1)
        gain = drain.history.without(out.tolist())
        assert gain.recoverable_ns == int((steps.max(axis=1) - left.max(axis=1)).sum())
        assert not gain.at_least


def test_a_set_of_all_the_ranks_that_were_kept_gives_a_lower_bound() -> None:
    own = list(range(100, 100 + 2 * TOP_RANKS))
    drain = watch_of([own]).drain()
    assert drain.history is not None
    gain = drain.history.without(range(TOP_RANKS, 2 * TOP_RANKS))
    assert gain.at_least
    assert 0 < gain.recoverable_ns <= TOP_RANKS


def test_a_stage_of_one_rank_cannot_be_drained_away() -> None:
    """Its work stays; somebody else would take as long, as far as anybody knows."""
    watch = DrainWatch(3, Options(settling_steps=0), {})
    groups = [np.array([0, 1]), np.array([2])]
    watch.see(judged_step(0, [10, 12, 90], groups))
    drain = watch.drain()
    assert drain.ranks == {}
    assert drain.history is not None
    assert drain.history.without([2]).recoverable_ns == 0


def test_settling_steps_and_absent_ranks_do_not_count() -> None:
    watch = DrainWatch(3, Options(settling_steps=2), {})
    for step in range(4):
        watch.see(judged_step(step, [-1, 30, 20]))
    drain = watch.drain()
    assert (drain.steps, drain.ranks) == (2, {1: 20})


def test_the_history_is_bounded_and_the_sums_are_not() -> None:
    watch = watch_of([[10, 30]] * 2000)
    drain = watch.drain()
    assert drain.ranks == {1: 2000 * 20}
    assert drain.history is not None
    assert len(drain.history.step) == 512


def test_ranks_of_an_empty_history_step_give_nothing() -> None:
    history = History(
        ranks=np.full((1, 4), -1), self_ns=np.full((1, 4), -1), step=np.array([0]),
        duration_ns=np.array([5]), group_of=np.zeros(4, dtype=np.int64),
    )  # fmt: skip
    gain = history.without([1])
    assert (gain.recoverable_ns, gain.at_least) == (0, False)


def test_what_draining_a_slow_rank_gives_back_is_what_was_put_into_it() -> None:
    fault = Fault(rank=5, phase=Phase.FORWARD, extra_ms=8)
    scenario = Scenario(data_parallel=8, steps=80, jitter=0.001, common_jitter=0.0, faults=(fault,))
    drain = analyse(scenario).drain()
    assert max(drain.ranks, key=lambda rank: drain.ranks[rank]) == 5
    assert drain.ranks[5] / drain.steps == pytest.approx(8e6, rel=0.02)
