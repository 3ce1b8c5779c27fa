from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import RingError
from paceline.ring import Record, RingReader
from paceline.ring import layout as at
from tests.contract.c_ring import CRing
from tests.contract.make_golden import GROUPS, IDENTITY, PENDING, ROWS, ring

GOLDEN = Path(__file__).parent / "golden" / "ring-v1.ring"


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "x.ring"
    path.write_bytes(data)
    return path


def with_header(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    changed = bytearray(data)
    change(changed)
    crc = zlib.crc32(changed[: at.STATIC_CRC_OFFSET])
    at.U32.pack_into(changed, at.STATIC_CRC_OFFSET, crc)
    return bytes(changed)


def test_golden_ring_reads_as_it_was_written() -> None:
    reader = RingReader(GOLDEN)
    batch = reader.poll()
    assert reader.identity == IDENTITY
    # 6 were written into 4 slots; the slot that the writer would fill next is not read.
    assert batch.records == [Record(*row) for row in ROWS[3:]]
    assert (batch.overwritten, batch.torn) == (3, 0)
    assert reader.meta() == (list(GROUPS), 0)
    (pending,) = reader.inflight()
    assert (pending.op, pending.group, pending.seq, pending.step, pending.peer) == PENDING[:5]
    assert (pending.payload_bytes, pending.start_ns) == PENDING[5:]
    assert reader.anchor().mono_ns == 1_000_080_000
    assert reader.anchor().wall_ns == 1_789_999_999_000_000_000
    assert reader.word(at.STEP_OFFSET) == 41
    assert reader.word(at.HEARTBEAT_OFFSET) == 1_000_090_000
    assert not reader.closed_by_writer
    assert not reader.writer_alive()
    reader.close()


def test_writer_still_writes_the_golden_bytes() -> None:
    assert ring() == GOLDEN.read_bytes()


def test_c_writer_writes_the_same_bytes(plugin_library: Path) -> None:
    assert ring(partial(CRing, library=plugin_library)) == GOLDEN.read_bytes()


def test_offsets_are_those_of_the_document() -> None:
    data = GOLDEN.read_bytes()
    assert data[:8] == b"PACERING"
    assert struct.unpack_from("<HHI", data, 8) == (1, 0, 0x0A0B0C0D)
    assert struct.unpack_from("<IIIIIII", data, 16) == (80, 4, 4096, 64, 8192, 131072, 139264)
    assert struct.unpack_from("<iiIII", data, 44) == (3, 1, 8, 2, 4242)
    assert data[80:96] == bytes(range(16))
    assert data[160:170] == b"golden-job"
    assert struct.unpack_from("<Q", data, 512) == (6,)
    assert len(data) == 139264 + 4 * 80


@pytest.mark.parametrize("size", [0, 7, 511, 4095])
def test_file_shorter_than_a_header_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(RingError, match="truncated or no ring"):
        RingReader(written(tmp_path, GOLDEN.read_bytes()[:size]))


@pytest.mark.parametrize("size", [4096, 100_000, 139_264 + 4 * 80 - 1])
def test_file_shorter_than_its_header_promises_is_refused(tmp_path: Path, size: int) -> None:
    with pytest.raises(RingError, match="truncated"):
        RingReader(written(tmp_path, GOLDEN.read_bytes()[:size]))


def test_newer_version_is_refused_with_what_to_do(tmp_path: Path) -> None:
    newer = with_header(GOLDEN.read_bytes(), lambda data: struct.pack_into("<H", data, 8, 2))
    with pytest.raises(RingError, match=r"version 2; this reader knows 1: update"):
        RingReader(written(tmp_path, newer))


def test_other_magic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="no ring"):
        RingReader(written(tmp_path, b"SOMETHING ELSE".ljust(200_000, b"\0")))


def test_header_that_does_not_match_its_checksum_is_refused(tmp_path: Path) -> None:
    data = bytearray(GOLDEN.read_bytes())
    data[100] ^= 1
    with pytest.raises(RingError, match="checksum"):
        RingReader(written(tmp_path, bytes(data)))


def test_file_larger_than_any_ring_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.ring"
    with open(path, "wb") as file:
        file.truncate(at.MAX_FILE_BYTES + 8)
    with pytest.raises(RingError, match="a ring has"):
        RingReader(path)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RingError, match="cannot open"):
        RingReader(tmp_path / "none.ring")


def test_torn_record_of_a_dead_writer_is_counted_and_the_next_is_read(tmp_path: Path) -> None:
    data = bytearray(GOLDEN.read_bytes())
    slot_of_4 = 139_264 + (4 % 4) * 80
    data[slot_of_4 + 3] ^= 0xFF
    reader = RingReader(written(tmp_path, bytes(data)))
    batch = reader.poll()
    assert batch.records == [Record(*ROWS[3]), Record(*ROWS[5])]
    assert batch.torn == 1
    reader.close()


def test_record_without_its_commit_word_is_torn_once_the_writer_is_dead(tmp_path: Path) -> None:
    data = bytearray(GOLDEN.read_bytes())
    struct.pack_into("<Q", data, 139_264 + (5 % 4) * 80 + at.RECORD_COMMIT_OFFSET, 0)
    reader = RingReader(written(tmp_path, bytes(data)))
    batch = reader.poll()
    assert [record.seq for record in batch.records] == [ROWS[3][3], ROWS[4][3]]
    assert batch.torn == 1
    reader.close()


def test_record_that_was_committed_but_not_counted_by_the_head_is_read(tmp_path: Path) -> None:
    data = bytearray(GOLDEN.read_bytes())
    struct.pack_into("<Q", data, at.HEAD_OFFSET, 5)
    reader = RingReader(written(tmp_path, bytes(data)))
    batch = reader.poll()
    assert batch.records[-1] == Record(*ROWS[5])
    reader.close()


def test_corrupt_metadata_entry_is_counted_and_the_next_is_read(tmp_path: Path) -> None:
    data = bytearray(GOLDEN.read_bytes())
    data[8192 + 10] ^= 0xFF
    reader = RingReader(written(tmp_path, bytes(data)))
    assert reader.meta() == ([GROUPS[1]], 1)
    reader.close()


def test_ring_truncated_while_it_is_read_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = written(tmp_path, GOLDEN.read_bytes())
    reader = RingReader(path)
    with open(path, "r+b") as file:
        file.truncate(4096)
    with pytest.raises(RingError, match="truncated"):
        reader.poll()
    reader.close()


def read_everything(path: Path) -> None:
    try:
        reader = RingReader(path)
    except RingError:
        return
    batch = reader.poll()
    assert len(batch.records) <= 4
    reader.meta()
    reader.inflight()
    reader.anchor()
    reader.close()


@settings(max_examples=60, deadline=None)
@given(junk=st.binary(min_size=0, max_size=9000))
def test_random_bytes_never_break_the_reader(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes
) -> None:
    read_everything(written(tmp_path_factory.mktemp("ring"), junk))
    with_magic = GOLDEN.read_bytes()[:512] + junk
    read_everything(written(tmp_path_factory.mktemp("ring"), with_magic.ljust(140_000, b"\1")))


@settings(max_examples=100, deadline=None)
@given(
    flips=st.lists(
        st.tuples(
            st.one_of(st.integers(0, 700), st.integers(4096, 4400), st.integers(139_264, 139_583)),
            st.integers(1, 255),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_flipped_bytes_never_break_the_reader_nor_give_a_wrong_record(
    tmp_path_factory: pytest.TempPathFactory, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(GOLDEN.read_bytes())
    for position, mask in flips:
        data[position] ^= mask
    path = written(tmp_path_factory.mktemp("ring"), bytes(data))
    read_everything(path)
    try:
        reader = RingReader(path)
    except RingError:
        return
    assert set(reader.poll().records) <= {Record(*row) for row in ROWS}
    reader.close()
