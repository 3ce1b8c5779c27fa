from __future__ import annotations

import hashlib
import struct
import tracemalloc
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import WireError
from paceline.wire import codec, columns
from paceline.wire.codec import HEADER, Rejected, decode_frame, encode_frame, split_frames
from paceline.wire.dictionary import DICTIONARY
from paceline.wire.frames import COLUMN_NAMES, Frame
from tests.contract.make_golden import ROWS, frame

GOLDEN = Path(__file__).parent / "golden" / "frame-v1.bin"
WITH_DICTIONARY = GOLDEN.with_name("frame-v1-dictionary.bin")


def rows_of(decoded: Frame) -> list[tuple[int, ...]]:
    c = {name: columns.decode(column, decoded.count) for name, column in decoded.columns.items()}
    start = c["start_ns"]
    end = [s + d if d >= 0 else 0 for s, d in zip(start, c["end_after_ns"], strict=True)]
    join = [s + d if d >= 0 else 0 for s, d in zip(start, c["join_after_ns"], strict=True)]
    issue = [s - d if d >= 0 else 0 for s, d in zip(start, c["issue_before_ns"], strict=True)]
    plain = [c[name] for name in ("kind", "code", "group", "seq", "step", "peer", "payload_bytes")]
    return list(zip(*plain, start, end, join, issue, c["flags"], strict=True))


def test_golden_frame_reads_as_it_was_written() -> None:
    (packed,) = split_frames(GOLDEN.read_bytes())
    assert isinstance(packed, bytes)
    decoded = decode_frame(packed)
    assert rows_of(decoded) == list(ROWS)
    assert decoded == decode_frame(frame())
    assert (decoded.job, decoded.run_id, decoded.attempt, decoded.rank) == (
        "golden-job",
        "run-7",
        2,
        3,
    )
    assert (decoded.node, decoded.ended, decoded.frame_seq) == ("node-ä", "killed", 12)
    assert [(g.index, g.name, g.ranks, g.epoch) for g in decoded.groups] == [
        (0, "world", "0-7", 0),
        (1, "dp", "1-7:2", 1),
    ]
    assert decoded.dropped == {"ring_overwritten": 3}


def test_content_is_still_written_byte_for_byte_before_compression() -> None:
    # Compressed bytes may differ between builds of zlib; what they hold may not.
    old, new = GOLDEN.read_bytes(), frame()
    assert zlib.decompress(old[HEADER.size :]) == content(new)
    assert content(WITH_DICTIONARY.read_bytes()) == content(new)
    assert HEADER.unpack_from(old)[:4] == (b"PLWF", 1, 1, 0)
    assert HEADER.unpack_from(new)[:4] == (b"PLWF", 1, 2, 0)


def content(packed_frame: bytes) -> bytes:
    return zlib.decompressobj(zdict=DICTIONARY).decompress(packed_frame[HEADER.size :])


def test_the_dictionary_never_changes_and_frames_of_both_compressions_are_read() -> None:
    frozen = "c8810a6b81f4dc7f25012742cff726c11ed47fc94cdbf507843b89c0ff37071a"
    assert hashlib.sha256(DICTIONARY).hexdigest() == frozen
    body = GOLDEN.read_bytes() + WITH_DICTIONARY.read_bytes()
    first, second = split_frames(body)
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert decode_frame(first) == decode_frame(second)
    assert len(second) < 0.7 * len(first)


def test_a_stream_that_asks_for_another_dictionary_is_refused() -> None:
    raw = content(WITH_DICTIONARY.read_bytes())
    deflater = zlib.compressobj(1, zdict=b"another dictionary of another program")
    packed = deflater.compress(raw) + deflater.flush()
    header = HEADER.pack(b"PLWF", 1, 2, 0, len(packed), len(raw), zlib.crc32(packed))
    with pytest.raises(WireError, match="cannot be decoded"):
        decode_frame(header + packed)


def test_a_record_takes_about_ten_bytes() -> None:
    rows = []
    for step in range(5):
        for seq in range(100):
            start = 10**15 + step * 10**9 + seq * 9_876_543 + (seq * 7919) % 100_003
            duration = 1_000_000 + seq * seq * 31 % 65_521
            index = step * 100 + seq
            rows.append((1, 1, 0, index, step, -1, 1 << 20, start, start + duration, 0, start, 0))
    packed = len(zlib.compress(msgspec.msgpack.encode(codec.encode_rows(rows)), 1))
    assert packed / len(rows) < 11


def test_frame_of_a_newer_version_is_skipped_and_the_next_one_still_read() -> None:
    good = GOLDEN.read_bytes()
    newer = bytearray(good)
    newer[4] = 3
    first, second = split_frames(bytes(newer) + good)
    assert isinstance(first, Rejected)
    assert first.offset == 0
    assert "wire version 3; this collector knows 2" in first.reason
    assert second == good


def test_unknown_compression_is_skipped_and_the_next_one_still_read() -> None:
    good = GOLDEN.read_bytes()
    other = bytearray(good)
    other[5] = 9
    first, second = split_frames(bytes(other) + good)
    assert first == Rejected(offset=0, reason="unknown compression 9")
    assert second == good


@pytest.mark.parametrize("cut", [1, 10, 19, 100])
def test_truncated_body_is_reported_where_it_ends(cut: int) -> None:
    good = GOLDEN.read_bytes()
    first, second = split_frames(good + good[:-cut])
    assert first == good
    assert isinstance(second, Rejected)
    assert second.offset == len(good)


def test_oversized_promise_is_refused_before_it_is_read() -> None:
    header = HEADER.pack(b"PLWF", 1, 1, 0, 10, 1 << 31, 0)
    (only,) = split_frames(header + b"0123456789")
    assert isinstance(only, Rejected)
    assert "limits" in only.reason


PACKED_BOMB = zlib.compress(bytes(200 << 20), 1)


def bomb(promised_bytes: int) -> bytes:
    packed = PACKED_BOMB
    return HEADER.pack(b"PLWF", 1, 1, 0, len(packed), promised_bytes, zlib.crc32(packed)) + packed


@pytest.mark.parametrize("promised_bytes", [0, 100, 4 << 20, (4 << 20) + 1])
def test_decompression_bomb_is_refused_without_being_unpacked(promised_bytes: int) -> None:
    packed = bomb(promised_bytes)
    assert len(packed) < codec.MAX_PACKED_BYTES
    tracemalloc.start()
    with pytest.raises(WireError):
        decode_frame(packed)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 16 << 20


def test_checksum_is_checked_before_the_content() -> None:
    broken = bytearray(GOLDEN.read_bytes())
    broken[-1] ^= 1
    with pytest.raises(WireError, match="checksum"):
        decode_frame(bytes(broken))


def test_too_many_bytes_for_one_frame_are_refused_by_the_sender() -> None:
    decoded = decode_frame(GOLDEN.read_bytes())
    with pytest.raises(WireError, match="put fewer records"):
        encode_frame(msgspec.structs.replace(decoded, info={"x": "y" * (5 << 20)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rank": 8}, "rank 8 of world size 8"),
        ({"rank": -1}, "rank -1"),
        ({"world_size": 2_000_000}, "world size 2000000"),
        ({"count": 7}, "column kind"),
        ({"count": 1 << 20}, "the limit is 16384"),
        ({"columns": {}}, "is missing"),
        ({"incarnation": "xyz"}, "incarnation"),
        ({"incarnation": "Z" * 32}, "incarnation"),
        ({"frame_seq": -1}, "frame_seq"),
        ({"attempt": -1}, "attempt"),
        ({"job": "a/b"}, "job"),
        ({"job": ""}, "job"),
        ({"job": "x" * 129}, "job"),
    ],
)
def test_content_out_of_range_is_refused(changes: dict[str, object], message: str) -> None:
    decoded = decode_frame(GOLDEN.read_bytes())
    with pytest.raises(WireError, match=message):
        decode_frame(encode_frame(msgspec.structs.replace(decoded, **changes)))


def test_unknown_keys_of_a_later_minor_addition_are_ignored() -> None:
    content = msgspec.msgpack.decode(zlib.decompress(GOLDEN.read_bytes()[HEADER.size :]))
    content["telemetry_of_tomorrow"] = [1, 2, 3]
    raw = msgspec.msgpack.encode(content)
    packed = zlib.compress(raw)
    header = HEADER.pack(b"PLWF", 1, 1, 0, len(packed), len(raw), zlib.crc32(packed))
    assert decode_frame(header + packed) == decode_frame(GOLDEN.read_bytes())


def with_content(raw: bytes) -> bytes:
    packed = zlib.compress(raw)
    return HEADER.pack(b"PLWF", 1, 1, 0, len(packed), len(raw), zlib.crc32(packed)) + packed


def test_text_that_is_not_utf8_and_endless_nesting_are_refused() -> None:
    for raw in (b"\x81\xa3job\xa2\xff\xfe", b"\x81\xa1x" + b"\x91" * 100_000):
        with pytest.raises(WireError):
            decode_frame(with_content(raw))


@settings(max_examples=200, deadline=None)
@given(junk=st.binary(max_size=400))
def test_random_bytes_are_rejected_and_never_raise_anything_else(junk: bytes) -> None:
    for part in split_frames(junk):
        assert isinstance(part, Rejected)
    for packed in (junk, with_content(junk or b"\0")):
        with pytest.raises(WireError):
            decode_frame(packed)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bytes_within_the_checksum_are_always_found(data: st.DataObject) -> None:
    good = bytearray(GOLDEN.read_bytes())
    position = data.draw(st.integers(HEADER.size, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(WireError):
        decode_frame(bytes(good))


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_flipped_bytes_of_the_content_are_an_error_or_a_valid_frame(data: st.DataObject) -> None:
    raw = bytearray(zlib.decompress(GOLDEN.read_bytes()[HEADER.size :]))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_frame(with_content(bytes(raw)))
    except WireError:
        return
    for name, column in decoded.columns.items():
        if name in COLUMN_NAMES:
            assert len(columns.decode(column, decoded.count)) == decoded.count


def test_header_layout_is_that_of_the_document() -> None:
    assert struct.calcsize("<4sBBHIII") == HEADER.size == 20
