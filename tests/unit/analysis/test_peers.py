"""Peers are found from what the ranks issue."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.vocabulary import Op, RecordKind
from paceline_service.analysis.evidence.peers import CHECK_STEPS, SIGNATURE_STEPS, PeerFinder
from paceline_service.analysis.evidence.roles import stages
from paceline_service.analysis.matching.groups import members_of
from paceline_service.analysis.matching.match import match
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import Group, records_from_rows
from tests.simulator.feed import feed
from tests.simulator.hybrid import Hybrid, simulate_hybrid

WORLD = [tuple(range(6))]


def exchange(pairs: list[tuple[int, int]], times: int = 3) -> Table:
    """Return the sends and receives of ``pairs`` (source, destination)."""
    rows: dict[int, list[tuple[int, ...]]] = {}
    for seq in range(times):
        for source, target in pairs:
            at = 100 * seq + 1
            for rank, peer, op in ((source, target, Op.SEND), (target, source, Op.RECV)):
                rows.setdefault(rank, []).append(
                    (RecordKind.COLLECTIVE, op, 0, seq, 0, peer, 8, at, at + 5, at, at, 0)
                )
    return stack([as_table(records_from_rows(rank, found)) for rank, found in rows.items()])


def step(signature: dict[int, int], size: int = 6) -> Table:
    """Return a step in which each rank issues so many all-reduces."""
    return stack(
        [
            as_table(
                records_from_rows(
                    rank,
                    [
                        (RecordKind.COLLECTIVE, Op.ALL_REDUCE, 0, seq, 0, -1, 8, 1, 2, 1, 1, 0)
                        for seq in range(count)
                    ],
                )
            )
            for rank, count in signature.items()
        ]
    )


def found(finder: PeerFinder) -> list[list[int]]:
    return [ranks.tolist() for ranks in finder.groups()]


@pytest.mark.parametrize(
    ("job", "groups"),
    [
        (Hybrid(tensor=2, data=3), [list(range(6))]),
        (Hybrid(data=2, stages=3), [[0, 1], [2, 3], [4, 5]]),
        (Hybrid(tensor=2, data=2, stages=2), [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (Hybrid(stages=3), [[0], [1], [2]]),
    ],
)
def test_ranks_of_one_stage_are_peers_whatever_their_groups_are_called(
    job: Hybrid, groups: list[list[int]]
) -> None:
    analysis, _ = feed(simulate_hybrid(job))
    assert found(analysis._peers) == groups


def test_a_ring_is_no_pipeline() -> None:
    ring = exchange([(r, (r + 1) % 6) for r in range(6)])
    assert stages(ring, 6).tolist() == [0] * 6


def test_an_exchange_of_all_with_all_is_no_pipeline() -> None:
    everyone = exchange([(a, b) for a in range(4) for b in range(4) if a != b])
    assert stages(everyone, 4).tolist() == [0] * 4


def test_a_pipeline_over_the_world_group_has_its_stages() -> None:
    chain = exchange([(0, 2), (2, 4), (4, 2), (2, 0), (1, 3), (3, 5), (5, 3), (3, 1)])
    assert stages(chain, 6).tolist() == [0, 0, 1, 1, 2, 2]


def test_an_interleaved_pipeline_that_wraps_round_has_its_stages() -> None:
    """Each rank holds two chunks: the last stage sends to the first one as well."""
    pairs = [(0, 1), (1, 2), (2, 0), (0, 1), (1, 2)]
    both = pairs + [(b, a) for a, b in pairs]
    assert stages(exchange(both), 3).tolist() == [0, 1, 2]


def test_a_few_lost_records_make_nobody_a_stranger() -> None:
    rng = np.random.default_rng(2)
    finder, members = PeerFinder(6), members_of([Group(name="world", ranks=WORLD[0])])
    for _ in range(SIGNATURE_STEPS):
        counts = {rank: 20 - int(rng.random() < 0.2) for rank in range(6)}
        finder.learn(match(step(counts), members), members)
    assert found(finder) == [list(range(6))]


def test_roles_are_read_anew_after_the_ranks_have_changed_what_they_do() -> None:
    finder, members = PeerFinder(6), members_of([Group(name="world", ranks=WORLD[0])])
    for _ in range(SIGNATURE_STEPS):
        finder.learn(match(step(dict.fromkeys(range(6), 5)), members), members)
    assert found(finder) == [list(range(6))]
    other = match(step({rank: 5 + 4 * (rank >= 3) for rank in range(6)}), members)
    for _ in range(2 * CHECK_STEPS + SIGNATURE_STEPS):
        finder.learn(other, members)
    assert found(finder) == [[0, 1, 2], [3, 4, 5]]


def test_one_step_of_other_work_changes_nobodys_peers() -> None:
    finder, members = PeerFinder(6), members_of([Group(name="world", ranks=WORLD[0])])
    usual = match(step(dict.fromkeys(range(6), 5)), members)
    for number in range(1, 4 * CHECK_STEPS):
        odd = match(step({r: 5 + r for r in range(6)}), members)
        finder.learn(odd if number == CHECK_STEPS else usual, members)
    assert found(finder) == [list(range(6))]
