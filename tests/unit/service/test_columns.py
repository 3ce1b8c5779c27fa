from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.wire import columns as wire_columns
from paceline.wire.codec import ROW_FIELDS, decode_frame, encode_frame, encode_rows
from paceline.wire.frames import Frame
from paceline_service.ingest.columns import decode_column, decode_records

values = st.lists(st.integers(-(1 << 61), 1 << 61), max_size=60)


@given(values, st.booleans())
def test_numpy_reads_the_same_integers_as_the_standard_library(
    numbers: list[int], delta: bool
) -> None:
    column = wire_columns.encode(numbers, delta=delta)
    assert decode_column(column, len(numbers)).tolist() == numbers
    assert wire_columns.decode(column, len(numbers)) == numbers


def test_records_are_the_rows_that_were_sent_and_unknown_times_are_zero() -> None:
    rows = [
        (1, 1, 0, 7, 3, -1, 1 << 20, 10**15, 10**15 + 500, 10**15 + 100, 10**15, 2),
        (1, 1, 0, 8, 3, -1, 4, 10**15 + 900, 0, 0, 0, 16),
        (3, 0, 0, 0, 3, -1, 0, 10**15 - 50, 10**15 + 2000, 0, 0, 0),
    ]
    frame = Frame(
        job="j", run_id="r", attempt=0, rank=1, world_size=2, incarnation="0" * 32, frame_seq=0,
        node="n", producer="python", count=len(rows), columns=encode_rows(rows),
    )  # fmt: skip
    records = decode_records(decode_frame(encode_frame(frame)))
    assert records.rank == 1
    columns = [getattr(records, name).tolist() for name in ROW_FIELDS]
    assert list(zip(*columns, strict=True)) == rows
