from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Op
from paceline_service.analysis.standstill.diagnose import (
    ALONE,
    DIFFERENT,
    MUTUAL,
    NEVER_FINISHED,
    NEVER_ISSUED,
    STUCK,
    Culprits,
    diagnose,
)
from paceline_service.analysis.standstill.waiting import Came, waiting_of
from tests.simulator.standing import Standing

OLD_NS = 10**12
T_NS = 30 * 10**9


def name(
    pending: list[tuple[int, ...]],
    came: list[tuple[int, ...]] | np.ndarray,
    groups: list[tuple[int, ...]],
    *,
    threshold_ns: int = T_NS,
) -> list[Culprits]:
    table = np.array(came, dtype=np.int64).reshape(-1, 4)
    size = 1 + max(rank for ranks in groups for rank in ranks)
    return diagnose(
        waiting_of(pending),
        Came(rank=table[:, 0], group=table[:, 1], issued=table[:, 2], released=table[:, 3]),
        [np.array(ranks) for ranks in groups],
        size,
        threshold_ns,
    )


def row(
    rank: int, seq: int, *, group: int = 0, op: Op = Op.ALL_REDUCE, age_ns: int = OLD_NS,
    peer: int = -1, payload_bytes: int = 64,
) -> tuple[int, ...]:  # fmt: skip
    return rank, group, int(op), seq, 0, peer, payload_bytes, age_ns


@pytest.mark.parametrize("seed", range(40))
def test_in_a_hybrid_job_exactly_the_ranks_that_stopped_are_named(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tensor, data = int(rng.integers(2, 5)), int(rng.integers(2, 5))
    stopped = rng.choice(tensor * data, size=int(rng.integers(1, 3)), replace=False).tolist()
    at = int(rng.integers(1, 12))
    job = Standing(tensor=tensor, data=data, stops=dict.fromkeys(stopped, at))
    pending, came = job.run()
    (culprits,) = name(pending, came, job.groups)
    assert (culprits.manner, culprits.ranks) == (NEVER_ISSUED, sorted(stopped))


@pytest.mark.parametrize("seed", range(10))
def test_a_device_that_finishes_nothing_is_told_from_a_host_that_issues_nothing(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(0, 16))
    at = int(rng.integers(3, 12))
    job = Standing(stops={rank: at}, stuck_device=frozenset({rank}))
    pending, came = job.run()
    (culprits, *_) = name(pending, came, job.groups)
    assert (culprits.manner, culprits.ranks) == (NEVER_FINISHED, [rank])


def test_a_wait_that_is_young_accuses_nobody() -> None:
    pending = [row(0, 8, age_ns=T_NS - 1), row(1, 8, age_ns=T_NS - 1)]
    came = [(0, 0, 8, 7), (1, 0, 8, 7), (2, 0, 7, 7)]
    assert name(pending, came, [(0, 1, 2)]) == []


def test_where_every_member_has_entered_the_collective_stands_and_nobody_is_accused() -> None:
    pending = [row(rank, 8) for rank in range(4)]
    came = [(rank, 0, 8, 7) for rank in range(4)]
    (culprits,) = name(pending, came, [(0, 1, 2, 3)])
    assert (culprits.manner, culprits.ranks, culprits.waiters) == (STUCK, [], 4)
    # Where nobody knows an age, it may have begun a moment ago.
    unknown = [row(rank, 8, age_ns=-1) for rank in range(4)]
    assert name(unknown, came, [(0, 1, 2, 3)], threshold_ns=0) == []


def test_ranks_that_wait_for_one_in_a_collective_that_stands_do_not_accuse_it() -> None:
    groups = [(0, 1), (2, 3), (0, 2), (1, 3)]
    pending = [row(0, 8, group=2), row(2, 8, group=2), row(1, 5), row(3, 5, group=1)]
    came = [(0, 0, 4, 4), (1, 0, 5, 4), (2, 1, 4, 4), (3, 1, 5, 4), (0, 2, 8, 7), (2, 2, 8, 7)]
    (culprits,) = name(pending, came, groups)
    assert (culprits.manner, culprits.ranks, culprits.waiters) == (STUCK, [], 4)
    assert pending[culprits.row][1] == 2


def test_an_operation_issued_ahead_by_ranks_that_wait_for_another_is_not_what_stands() -> None:
    pending = [*(row(rank, 8) for rank in range(4)), *(row(rank, 9) for rank in range(1, 4))]
    came = [(0, 0, 8, 7), *((rank, 0, 9, 7) for rank in range(1, 4))]
    (culprits,) = name(pending, came, [(0, 1, 2, 3)])
    assert (culprits.manner, culprits.ranks) == (NEVER_ISSUED, [0])


def test_a_broadcast_that_its_root_has_left_proves_nothing_about_the_others() -> None:
    pending = [row(rank, 8, op=Op.BROADCAST) for rank in (1, 2, 3)]
    came = [(0, 0, 8, 8), (1, 0, 8, 7), (2, 0, 8, 7), (3, 0, 8, 7)]
    assert name(pending, came, [(0, 1, 2, 3)]) == []


def test_a_rank_with_another_operation_under_the_same_number_is_a_desync() -> None:
    pending = [row(rank, 8) for rank in range(3)] + [row(3, 8, op=Op.ALL_GATHER)]
    (culprits,) = name(pending, [(rank, 0, 8, 7) for rank in range(4)], [(0, 1, 2, 3)])
    assert (culprits.manner, culprits.ranks) == (DIFFERENT, [3])


@pytest.mark.parametrize(
    ("op", "is_desync"), [(Op.ALL_REDUCE, True), (Op.ALL_TO_ALL, False), (Op.ALL_GATHER, False)]
)
def test_sizes_must_be_equal_only_where_the_operation_needs_it(op: Op, is_desync: bool) -> None:
    pending = [row(rank, 8, op=op, payload_bytes=64 + 64 * (rank == 2)) for rank in range(4)]
    found = name(pending, [(rank, 0, 8, 7) for rank in range(4)], [(0, 1, 2, 3)])
    expected = (DIFFERENT, [2]) if is_desync else (STUCK, [])
    assert [(c.manner, c.ranks) for c in found] == [expected]


def test_two_ranks_that_wait_for_each_other_in_different_groups_are_a_desync() -> None:
    groups = [(0, 1), (0, 1)]
    pending = [row(0, 5, group=0), row(1, 5, group=1)]
    came = [(0, 0, 5, 4), (1, 0, 4, 4), (0, 1, 4, 4), (1, 1, 5, 4)]
    (culprits,) = name(pending, came, groups)
    assert (culprits.manner, culprits.ranks) == (MUTUAL, [0, 1])


def test_one_rank_of_eight_that_issued_something_more_is_the_odd_one() -> None:
    came = [(rank, 0, 8 if rank == 5 else 7, 7) for rank in range(8)]
    (culprits,) = name([row(5, 8)], came, [tuple(range(8))])
    assert (culprits.manner, culprits.ranks) == (ALONE, [5])


def test_a_pending_receive_leads_to_its_sender_and_its_counter_to_nobody() -> None:
    groups = [(0, 1, 2, 3)]
    pending = [
        row(3, 70, op=Op.RECV, peer=2), row(2, 40, op=Op.RECV, peer=1), row(1, 10, op=Op.RECV,
        peer=0),
    ]  # fmt: skip
    (culprits,) = name(pending, [], groups)
    assert (culprits.manner, culprits.ranks) == (NEVER_ISSUED, [0])


def test_a_send_and_its_receive_that_are_both_pending_accuse_nobody() -> None:
    pending = [row(0, 3, op=Op.SEND, peer=1), row(1, 3, op=Op.RECV, peer=0)]
    assert name(pending, [], [(0, 1)]) == []


def test_one_rank_alone_or_nothing_pending_gives_no_answer() -> None:
    assert name([], [], [(0,)]) == []
    assert name([row(0, 1)], [(0, 0, 1, 0)], [(0,)]) == []
