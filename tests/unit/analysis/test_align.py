"""Pairing by order: only with a proof, and a refusal that says what speaks against it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_service.analysis.matching.align import (
    Aligned,
    Refused,
    align,
    another_repetition,
    implausible,
)


def aligned(*sequences: str) -> Aligned | Refused:
    """Align sequences of one-letter signatures of ranks 0, 1, ..."""
    names = {ord(letter): letter for text in sequences for letter in text}
    numbers = [np.array([ord(letter) for letter in text], dtype=np.int64) for text in sequences]
    return align(range(len(sequences)), numbers, names)


def pairs(found: Aligned | Refused, *sequences: str) -> list[str]:
    assert isinstance(found, Aligned)
    return [s[f : f + found.length] for s, f in zip(sequences, found.first.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("sequences", "common"),
    [
        (("ABCDE", "ABCDE"), "ABCDE"),
        (("ABCDE", "BCDE"), "BCDE"),  # began late
        (("ABCDE", "ABCD", "ABCDE"), "ABCD"),  # ended early
        (("ABCDE", "BCD"), "BCD"),  # both
        (("ABCDE", "BCDEF", "CDEFG"), "CDE"),  # each at another time
    ],
)
def test_windows_that_differ_at_their_ends_are_paired_where_they_overlap(
    sequences: tuple[str, ...], common: str
) -> None:
    found = aligned(*sequences)
    assert pairs(found, *sequences) == [common] * len(sequences)
    assert isinstance(found, Aligned)
    assert found.unique
    assert found.left_out.tolist() == [len(s) - len(common) for s in sequences]


def test_a_lost_record_is_refused_with_the_rank_the_position_and_both_signatures() -> None:
    found = aligned("ABCDEFG", "ABCEFG")
    assert isinstance(found, Refused)
    assert "position 3 is" in found.reason
    assert "E on rank 1 and D on rank 0" in found.reason
    assert "(6 and 7 collectives)" in found.reason


def test_two_records_that_changed_places_are_refused() -> None:
    assert isinstance(aligned("ABCDEFG", "ABCDFEG"), Refused)


def test_unequal_windows_of_an_order_that_repeats_itself_are_ambiguous() -> None:
    found = aligned("ABABABAB", "ABABAB")
    assert isinstance(found, Refused)
    assert "ambiguous" in found.reason
    assert "rank 1" in found.reason


def test_equal_windows_of_an_order_that_repeats_itself_are_paired_but_not_called_unique() -> None:
    found = aligned("ABABABAB", "ABABABAB")
    assert pairs(found, "ABABABAB", "ABABABAB") == ["ABABABAB"] * 2
    assert isinstance(found, Aligned)
    assert not found.unique


def test_a_rank_without_collectives_is_named() -> None:
    found = aligned("ABC", "", "ABC")
    assert isinstance(found, Refused)
    assert "rank 1 recorded no collective" in found.reason


def test_windows_that_hardly_overlap_are_refused() -> None:
    assert isinstance(aligned("ABCDEFGH", "GHIJKLMN"), Refused)


def test_windows_that_overlap_pairwise_but_not_all_together_are_refused() -> None:
    found = aligned("ABCDEFGH", "EFGHIJKL", "WXYZABCD")
    assert isinstance(found, Refused)
    assert "in the windows of all ranks" in found.reason


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2**32 - 1))
def test_any_late_begin_and_early_end_of_an_order_without_repeats_is_found(
    late: int, early: int, seed: int
) -> None:
    order = np.random.default_rng(seed).permutation(40).astype(np.int64)
    found = align([0, 1], [order, order[late : len(order) - early]], {})
    assert isinstance(found, Aligned)
    assert found.unique
    assert found.first.tolist() == [late, 0]
    assert found.length == 40 - late - early


@given(st.lists(st.lists(st.integers(0, 2), max_size=12), min_size=1, max_size=4))
def test_whatever_is_paired_agrees_at_every_position(sequences: list[list[int]]) -> None:
    numbers = [np.array(own, dtype=np.int64) for own in sequences]
    found = align(range(len(numbers)), numbers, {})
    if isinstance(found, Aligned):
        parts = [
            own[first : first + found.length].tolist()
            for own, first in zip(numbers, found.first.tolist(), strict=True)
        ]
        assert all(part == parts[0] for part in parts)
        assert found.length >= 1


def times(
    arrivals_ms: Sequence[Sequence[float]], transfer_ms: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    start = (np.array(arrivals_ms) * 1e6).astype(np.int64)
    end = np.repeat(start.max(axis=1, keepdims=True) + int(transfer_ms * 1e6), start.shape[1], 1)
    return start, end


def test_true_pairs_on_clocks_that_are_hours_apart_are_plausible() -> None:
    rng = np.random.default_rng(2)
    start, end = times(np.arange(50)[:, None] * 100 + rng.uniform(0, 60, (50, 4)))
    offset = np.array([0, 7_200, -3_600, 5]) * 1_000_000_000
    assert implausible(range(4), start + offset, end + offset) is None


def test_pairs_of_which_one_had_left_before_the_other_came_are_refused() -> None:
    rng = np.random.default_rng(2)
    start, end = times(np.arange(50)[:, None] * 100 + rng.uniform(0, 60, (50, 4)))
    other, other_end = times(np.arange(50)[:, None] * 100 + rng.uniform(0, 60, (50, 2)))
    start[:, 2:], end[:, 2:] = other, other_end
    found = implausible([4, 5, 6, 7], start, end)
    assert isinstance(found, Refused)
    assert "had left" in found.reason


@pytest.mark.parametrize(
    ("apart_ms", "numbered", "refused"),
    [(0, False, False), (40, False, False), (100, False, True), (3_000, False, True),
     (40, True, False), (100, True, True), (3_000, True, False)],
)  # fmt: skip
def test_clocks_speak_against_an_order_that_repeats_itself(
    apart_ms: int, numbered: bool, refused: bool
) -> None:
    # Every 100 ms the same; clocks wrong by seconds say nothing where the steps have numbers.
    end = np.arange(20)[:, None] * 100_000_000 + np.array([0, apart_ms * 1_000_000])
    found = another_repetition([4, 7], np.zeros(20, dtype=np.int64), end, numbered=numbered)
    assert (found is not None) is refused
    if found is not None:
        assert "repeats itself every 100.0 ms" in found.reason


def test_clocks_say_nothing_of_an_order_without_repeats() -> None:
    end = np.arange(20)[:, None] * 100_000_000 + np.array([0, 500_000_000])
    assert another_repetition([0, 1], np.arange(20), end, numbered=False) is None
