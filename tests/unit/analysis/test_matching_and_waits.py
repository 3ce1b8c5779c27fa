from __future__ import annotations

import numpy as np

from paceline.vocabulary import Op, RecordKind
from paceline_service.analysis.blame.waits import Waits, measure_waits
from paceline_service.analysis.matching.groups import Members, members_of
from paceline_service.analysis.matching.match import match
from paceline_service.analysis.matching.table import as_table, stack
from paceline_service.analysis.records import Group, records_from_rows

MS = 1_000_000


def row(
    seq: int, start_ms: float, end_ms: float, *, op: Op = Op.ALL_REDUCE, peer: int = -1,
    group: int = 0, join_ms: float | None = None,
) -> tuple[int, ...]:  # fmt: skip
    start, end = int(start_ms * MS), int(end_ms * MS)
    join = start if join_ms is None else int(join_ms * MS)
    return (RecordKind.COLLECTIVE, op, group, seq, 0, peer, 8, start, end, join, start, 0)


def world(size: int) -> Members:
    return members_of([Group(name="world", ranks=tuple(range(size)))])


def waits_of(
    ranks: dict[int, list[tuple[int, ...]]], *, clocks: list[int] | None = None,
    group_size: int | None = None, noise_ns: int = 0,
) -> Waits:  # fmt: skip
    table = stack([as_table(records_from_rows(rank, rows)) for rank, rows in ranks.items()])
    matches = match(table, world(group_size or len(ranks)))
    domain = np.array(clocks if clocks is not None else [0] * len(ranks), dtype=np.int64)
    return measure_waits(matches, domain, np.array([noise_ns], dtype=np.int64))


def test_on_one_clock_the_last_arrival_is_the_latest_start() -> None:
    waits = waits_of({0: [row(0, 10, 32)], 1: [row(0, 30, 32)], 2: [row(0, 12, 32)]})
    assert waits.last_rank.tolist() == [1]
    assert (waits.wait_ns / MS).tolist() == [20, 0, 18]
    assert waits.transfer_ns.tolist() == [2 * MS]


def test_without_a_shared_clock_the_shortest_duration_arrived_last() -> None:
    waits = waits_of(
        {0: [row(0, 10, 32)], 1: [row(0, 9030, 9032)], 2: [row(0, 512, 532)]},
        clocks=[-1, -1, -1],
    )
    assert waits.last_rank.tolist() == [1]
    assert (waits.wait_ns / MS).tolist() == [20, 0, 18]


def test_a_spread_below_the_release_noise_names_nobody() -> None:
    ranks = {0: [row(0, 10, 13)], 1: [row(0, 9030, 9032)]}
    assert waits_of(ranks, clocks=[-1, -1], noise_ns=MS // 10).last_rank.tolist() == [1]
    quiet = waits_of(ranks, clocks=[-1, -1], noise_ns=MS)
    assert quiet.last_rank.tolist() == [-1]
    assert quiet.wait_ns.sum() == 0


def test_receivers_of_a_broadcast_wait_for_its_root_and_for_nobody_else() -> None:
    broadcast = {"op": Op.BROADCAST, "peer": 1}
    waits = waits_of(
        {0: [row(0, 10, 32, **broadcast)], 1: [row(0, 30, 31, **broadcast)],
         2: [row(0, 50, 52, **broadcast)]}
    )  # fmt: skip
    assert waits.last_rank.tolist() == [1]
    assert (waits.wait_ns / MS).tolist() == [20, 0, 0]


def test_only_the_root_of_a_reduce_waits() -> None:
    reduce = {"op": Op.REDUCE, "peer": 0}
    waits = waits_of(
        {0: [row(0, 10, 32, **reduce)], 1: [row(0, 30, 31, **reduce)],
         2: [row(0, 12, 13, **reduce)]}
    )  # fmt: skip
    assert waits.last_rank.tolist() == [1]
    assert (waits.wait_ns / MS).tolist() == [20, 0, 0]


def test_a_receiver_waits_for_its_sender() -> None:
    waits = waits_of(
        {0: [row(0, 30, 31, op=Op.SEND, peer=1)], 1: [row(0, 10, 32, op=Op.RECV, peer=0)]},
        group_size=4,
    )
    assert waits.last_rank.tolist() == [0]
    assert (waits.wait_ns / MS).tolist() == [0, 20]


def test_a_collective_that_nobody_stopped_for_costs_no_time() -> None:
    overlapped = {0: [row(0, 10, 32, join_ms=0)], 1: [row(0, 30, 32, join_ms=0)]}
    waits = waits_of(overlapped)
    assert waits.last_rank.tolist() == [1]
    assert waits.wait_ns.sum() == waits.exposed_ns.sum() == 0


def test_only_the_part_after_the_join_is_exposed() -> None:
    waits = waits_of({0: [row(0, 10, 32, join_ms=25)], 1: [row(0, 30, 32)]})
    assert (waits.wait_ns / MS).tolist() == [5, 0]
    assert (waits.exposed_ns / MS).tolist() == [7, 2]


def test_nested_waits_of_one_rank_are_not_counted_twice() -> None:
    waits = waits_of({0: [row(0, 10, 40), row(1, 20, 50)], 1: [row(0, 39, 40), row(1, 41, 50)]})
    assert (waits.exposed_ns[[0, 2]] / MS).tolist() == [30, 10]


def test_an_incomplete_collective_blames_nobody() -> None:
    waits = waits_of({0: [row(0, 10, 32)], 1: [row(0, 30, 32)]}, group_size=3)
    assert waits.last_rank.tolist() == [-1]


def test_records_are_matched_by_group_and_sequence_and_counted_once() -> None:
    table = stack(
        [
            as_table(records_from_rows(0, [row(0, 1, 5), row(1, 6, 9), row(1, 6, 9)])),
            as_table(records_from_rows(1, [row(1, 7, 9), row(0, 2, 5), row(2, 10, 11)])),
        ]
    )
    matches = match(table, world(2))
    assert matches.complete.tolist() == [True, True, False]
    assert (matches.duplicates, matches.incomplete, matches.mismatched) == (1, 1, 0)


def test_members_that_issue_different_operations_are_mismatched() -> None:
    table = stack(
        [
            as_table(records_from_rows(0, [row(0, 1, 5)])),
            as_table(records_from_rows(1, [row(0, 1, 5, op=Op.BARRIER)])),
        ]
    )
    matches = match(table, world(2))
    assert (matches.mismatched, matches.complete.tolist()) == (1, [False])
