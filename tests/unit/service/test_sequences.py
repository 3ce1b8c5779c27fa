from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline_service.store.sequences import SequenceRanges


@given(st.lists(st.integers(0, 40)), st.integers(0, 10))
def test_ranges_hold_exactly_what_was_added_and_stay_merged(added: list[int], low: int) -> None:
    ranges = SequenceRanges(low, added[: len(added) // 2])
    for seq in added[len(added) // 2 :]:
        ranges.add(seq)
    expected = set(added) | set(range(low))
    assert {seq for seq in range(60) if seq in ranges} == expected
    for (_, end), (start, _) in zip(ranges.ranges, ranges.ranges[1:], strict=False):
        assert end < start
    gaps = {seq for first, last in ranges.gaps() for seq in range(first, last)}
    top = max(expected, default=-1)
    first = min(expected, default=0)
    assert gaps == {seq for seq in range(first, top) if seq not in expected}
