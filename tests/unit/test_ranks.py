from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import InputError
from paceline.ranks import format_ranks, parse_ranks, ranks_hash


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ((), ""),
        ((3,), "3"),
        (tuple(range(8)), "0-7"),
        (tuple(range(0, 57, 8)), "0-56:8"),
        ((1, 3, 9, 10, 11, 12), "1,3,9-12"),
        ((3, 2, 1), "3,2,1"),
        ((0, 2), "0,2"),
        ((0, 1), "0-1"),
    ],
)
def test_ranks_are_written_as_runs(ranks: tuple[int, ...], text: str) -> None:
    assert format_ranks(ranks) == text
    assert parse_ranks(text) == ranks


@given(st.lists(st.integers(0, 5000), max_size=60))
def test_any_order_survives_the_way_out_and_in(ranks: list[int]) -> None:
    assert parse_ranks(format_ranks(ranks)) == tuple(ranks)


def test_ten_thousand_ranks_are_a_short_text() -> None:
    assert len(format_ranks(range(10_000))) < 10


@pytest.mark.parametrize(
    "text", ["x", "1-", "-1", "5-1", "0-9:0", "1,,2", "0-99999999", "1 ", "0-3,0-999999", "٣"]
)
def test_what_is_no_rank_list_or_too_long_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_ranks(text)


def test_hash_tells_memberships_and_orders_apart() -> None:
    assert len({ranks_hash((0, 1)), ranks_hash((1, 0)), ranks_hash((0, 1, 2))}) == 3
