from __future__ import annotations

import numpy as np

from paceline_service.analysis.network.places import Lanes, Place, locate


def lanes(*members: tuple[int, ...], pairs: bool = False, nodes: list[int] | None = None) -> Lanes:
    """Groups of these ranks, or pairs; every rank has a node of its own where none are given."""
    ranks = max(max(part) for part in members) + 1
    return Lanes(
        group=np.zeros(len(members), dtype=np.int64) if pairs else np.arange(len(members)),
        source=np.array([part[0] if pairs else -1 for part in members]),
        destination=np.array([part[1] if pairs else -1 for part in members]),
        member_lane=np.repeat(np.arange(len(members)), [len(part) for part in members]),
        member_rank=np.array([rank for part in members for rank in part]),
        node_of_rank=np.array(nodes if nodes is not None else range(ranks)),
    )


def places(table: Lanes, *slow: int, unwatched: tuple[int, ...] = ()) -> list[Place]:
    is_slow = np.isin(np.arange(len(table)), slow)
    return locate(table, is_slow, ~np.isin(np.arange(len(table)), unwatched))


def test_nothing_slow_is_no_place() -> None:
    assert places(lanes((0, 1), (1, 2))) == []


def test_one_group_alone_tells_nothing_of_its_members() -> None:
    (place,) = places(lanes((0, 1, 2, 3)), 0)
    assert (place.what, place.ranks) == ("group", [0, 1, 2, 3])


def test_members_that_are_fast_elsewhere_are_cleared() -> None:
    (place,) = places(lanes((0, 1, 2), (0, 3, 4), (1, 3, 5), (3, 4, 5)), 0)
    assert (place.what, place.ranks) == ("rank", [2])


def test_a_member_whose_other_groups_tell_nothing_at_present_is_not_the_one() -> None:
    table = lanes((0, 1, 2), (0, 3, 4), (1, 3, 5), (2, 3, 5))
    (place,) = places(table, 0, unwatched=(3,))
    assert (place.what, place.ranks) == ("group", [0, 1, 2])


def test_groups_that_share_two_ranks_leave_both_in_doubt() -> None:
    (place,) = places(lanes((0, 1, 2), (0, 1, 3), (2, 3, 4), (4, 5, 2), (3, 5, 4), (5, 2, 3)), 0, 1)
    assert (place.what, place.ranks) == ("group", [0, 1])


def test_groups_within_a_node_do_not_clear_its_uplink() -> None:
    nodes = [0, 0, 1, 1, 2, 2]
    table = lanes((0, 1), (2, 3), (4, 5), (0, 2), (1, 3), (2, 4), (3, 5), (0, 4), (1, 5),
                  nodes=nodes)  # fmt: skip
    (place,) = places(table, 3, 4, 5, 6)
    assert (place.what, place.nodes, place.ranks) == ("node", [1], [2, 3])


def test_a_group_that_could_not_show_the_fault_clears_nobody() -> None:
    table = lanes((0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (1, 3))
    (place,) = places(table, 0, 1, unwatched=(2,))
    assert (place.what, place.ranks) == ("rank", [0])


def test_a_cell_a_row_and_a_column_of_pairs_are_told_apart() -> None:
    cells = [(a, b) for a in range(4) for b in range(4) if a != b]
    table = lanes(*cells, pairs=True)
    (cell,) = places(table, cells.index((2, 1)))
    (row,) = places(table, *(i for i, (a, _) in enumerate(cells) if a == 2))
    (column,) = places(table, *(i for i, (_, b) in enumerate(cells) if b == 2))
    (both,) = places(table, *(i for i, cell in enumerate(cells) if 2 in cell))
    assert (cell.what, cell.links) == ("link", [[2, 1]])
    assert [part.what for part in (row, column, both)] == ["sender", "receiver", "rank"]
    assert [part.ranks for part in (row, column, both)] == [[2], [2], [2]]


def test_everything_slow_is_the_fabric() -> None:
    (place,) = places(lanes((0, 1), (0, 2), (1, 2), (1, 3)), 0, 1, 2, 3)
    assert place.what == "fabric"


def test_all_pairs_between_two_nodes_are_what_lies_between_them() -> None:
    cells = [(0, 2), (2, 0), (1, 3), (3, 1), (2, 4), (3, 5), (4, 2), (5, 3), (0, 4), (1, 5)]
    table = lanes(*cells, pairs=True, nodes=[0, 0, 1, 1, 2, 2])
    (place,) = places(table, 0, 1, 2, 3)
    assert (place.what, place.nodes) == ("cable", [0, 1])
    assert place.links == [list(cell) for cell in cells[:4]]


def test_a_node_at_the_end_of_the_pipeline_is_as_suspect_as_its_only_link() -> None:
    cells = [(0, 2), (2, 0), (1, 3), (3, 1), (2, 4), (3, 5), (4, 2), (5, 3)]
    table = lanes(*cells, pairs=True, nodes=[0, 0, 1, 1, 2, 2])
    (place,) = places(table, 0, 1, 2, 3)
    assert (place.what, place.nodes) == ("cable", [])
    assert len(place.links) == 4
