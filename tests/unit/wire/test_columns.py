from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import WireError
from paceline.wire.columns import Column, decode, encode


@given(
    values=st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=50),
)
def test_any_64_bit_integers_survive(values: list[int]) -> None:
    assert decode(encode(values), len(values)) == values


@given(values=st.lists(st.integers(0, (1 << 63) - 1), max_size=50))
def test_any_counters_survive_as_differences(values: list[int]) -> None:
    assert decode(encode(values, delta=True), len(values)) == values


@pytest.mark.parametrize(
    ("values", "width"),
    [([], 1), ([127, -128], 1), ([128], 2), ([-129], 2), ([1 << 15], 4), ([1 << 31], 8)],
)
def test_narrowest_width_is_chosen(values: list[int], width: int) -> None:
    assert encode(values).width == width


def test_lowest_bytes_come_first() -> None:
    assert encode([0x0102, 0x0304]).data == bytes([0x02, 0x04, 0x01, 0x03])


def test_value_over_64_bits_is_refused() -> None:
    with pytest.raises(WireError, match="does not fit"):
        encode([1 << 63])


@pytest.mark.parametrize("column", [Column(3, False, b"abc"), Column(2, False, b"abc")])
def test_column_that_does_not_fit_its_count_is_refused(column: Column) -> None:
    with pytest.raises(WireError, match="corrupt"):
        decode(column, 1)
