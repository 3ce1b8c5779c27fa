from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import WireError
from paceline.ring import Record
from paceline.ring.rows import Rows, pack_record
from paceline.wire.codec import encode_rows
from paceline.wire.planes import encode_raw


def unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.one_of(
        st.sampled_from([0, 1, (1 << bits) - 1, 1 << (bits - 1)]), st.integers(0, (1 << bits) - 1)
    )


TIME = unsigned(63)
RECORDS = st.builds(
    Record, unsigned(8), unsigned(8), unsigned(16), TIME, unsigned(32),
    st.sampled_from([-1, 0, 7, 127, 128, -(1 << 31), (1 << 31) - 1]),
    TIME, TIME, TIME, TIME, TIME, unsigned(32),
)  # fmt: skip


@given(records=st.lists(RECORDS, max_size=40))
def test_raw_records_give_the_columns_that_their_values_give(records: list[Record]) -> None:
    rows = Rows(b"".join(map(pack_record, records)))
    assert list(rows) == records
    assert encode_raw(rows.raw) == encode_rows(records)


@pytest.mark.parametrize("field", [3, 6, 7, 8, 9, 10])
def test_value_of_64_bits_is_refused_in_every_field(field: int) -> None:
    values = [1, 1, 0, 5, 0, -1, 8, 100, 110, 0, 100, 0]
    values[field] = 1 << 63
    with pytest.raises(WireError, match="63 bits"):
        encode_raw(pack_record(Record(*values)))


def test_only_groups_of_collectives_count_as_used() -> None:
    rows = [
        Record(1, 1, 3, 0, 0, -1, 8, 1, 2, 0, 0, 0),
        Record(2, 9, 4, 0, 0, -1, 8, 1, 2, 0, 0, 0),
        Record(1, 255, 65535, 0, 0, -1, 8, 1, 2, 0, 0, 0),
    ]
    assert Rows(b"".join(map(pack_record, rows))).groups() == {3, 65535}
