"""The format of bundles: what was written once is read for ever, and what is wrong is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.errors import WireError
from paceline.ring import Record
from paceline.ring.rows import pack_record
from paceline.sidecar.pack import in_resolution
from paceline.wire.bundle_codec import decode_any, decode_bundle, encode_bundle, frames_of
from paceline.wire.bundles import Body, Bundle
from paceline.wire.codec import (
    BUNDLE_VERSION,
    Rejected,
    decode_frame,
    pack_content,
    split_frames,
    unpack_content,
)
from paceline.wire.columns import decode
from paceline.wire.planes import encode_units
from tests.contract.make_golden import bundle

GOLDEN = Path(__file__).parent / "golden" / "bundle-v2.bin"
FRAME = Path(__file__).parent / "golden" / "frame-v1.bin"


def content() -> list[Any]:
    found: list[Any] = msgspec.msgpack.decode(unpack_content(GOLDEN.read_bytes(), BUNDLE_VERSION))
    return found


def sealed(body: object) -> bytes:
    return pack_content(msgspec.msgpack.encode(body), BUNDLE_VERSION)


def with_origin(**changes: object) -> bytes:
    body = content()
    body[0] = msgspec.msgpack.encode({**msgspec.msgpack.decode(body[0]), **changes})
    return sealed(body)


def test_the_golden_bundle_is_read_and_what_is_made_today_says_the_same() -> None:
    (packed,) = split_frames(GOLDEN.read_bytes())
    assert isinstance(packed, bytes)
    read = decode_bundle(packed)
    assert read == decode_bundle(bundle())
    assert (read.job, read.attempt, read.frame_seq, read.count) == ("golden-job", 2, 5, 7)
    frame, other = frames_of(read)
    assert (frame.rank, frame.frame_seq, frame.step, frame.ended) == (3, 12, 41, "killed")
    assert (other.rank, other.dropped, other.groups[0].name) == (5, {"ring_torn": 1}, "world")
    assert decode(frame.columns["start_ns"], frame.count)[0] == 1_000_000_000 // 256 * 256
    assert decode(frame.columns["end_after_ns"], frame.count)[3] == -1
    assert frame.anchor_wall_ns == 1_789_999_999_000_000_000


def test_bundles_and_frames_share_a_body() -> None:
    both = GOLDEN.read_bytes() + FRAME.read_bytes()
    first, second = split_frames(both)
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert isinstance(decode_any(first), Bundle)
    assert decode_any(second) == decode_frame(FRAME.read_bytes())


def test_a_bundle_is_no_frame_to_who_knows_only_frames() -> None:
    with pytest.raises(WireError, match="not a frame of wire version 1"):
        decode_frame(GOLDEN.read_bytes())
    with pytest.raises(WireError, match="not a frame of wire version 2"):
        decode_bundle(FRAME.read_bytes())


def test_elements_of_a_later_version_are_ignored() -> None:
    assert decode_bundle(sealed([*content(), {"more": 1}])) == decode_bundle(GOLDEN.read_bytes())


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, b"no map"), (1, -1), (3, [1]), (3, [-1, 2]), (4, [6, -1]), (4, [16384, 1]), (4, [7, 1]),
        (5, [1 << 62, 0]), (6, [0, -(1 << 62)]), (9, [0, 0]), (9, [1 << 62, 0, 0]),
        (10, []), (10, [[3, b"abc"]] * 12), (10, [[1, b""]] * 12), (11, {2: {}}), (11, {-1: {}}),
        (11, {0: {"pending": [[1, 0, 0, 0, 0, 0, 0]] * 1025}}),
    ],
)  # fmt: skip
def test_content_that_does_not_fit_is_refused(place: int, value: object) -> None:
    body = content()
    body[place] = value
    with pytest.raises(WireError):
        decode_bundle(sealed(body))


@pytest.mark.parametrize(
    "changes",
    [
        {"job": "a job"}, {"world_size": 5}, {"world_size": 0}, {"attempt": -1},
        {"stream": "x" * 32}, {"members": []}, {"groups": []}, {"stream": bytes(range(16)).hex()},
        {"members": [[3, 0, "ab" * 16, "hooks", "", []]] * 2},
        {"members": [[3, 0, "ab" * 16, "p", "", [[0, -1]]], [5, 0, "cd" * 16, "p", "", []]]},
        {"members": [[-1, 0, "ab" * 16, "p", "", []], [5, 0, "cd" * 16, "p", "", []]]},
        {"members": [[3, 0, "ab" * 16, "p", "", []]]},
    ],
)  # fmt: skip
def test_an_origin_that_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(WireError):
        decode_bundle(with_origin(**changes))


def noisy(records: int, longest_ns: int) -> Body:
    """Return the golden bundle with so many records, whose times are all digits and no pattern."""
    rng = random.Random(7)
    now_ns, rows = 10**9, []
    for seq in range(records):
        now_ns += rng.randrange(1, longest_ns)
        end_ns = now_ns + rng.randrange(1, longest_ns)
        rows.append(Record(1, 1, 0, seq, 7, -1, 1 << 24, now_ns, end_ns, 0, now_ns, 0))
        now_ns = end_ns
    columns, bases = encode_units(in_resolution(b"".join(pack_record(row) for row in rows)))
    golden = decode_bundle(GOLDEN.read_bytes()).body
    counts = [records // 2, records - records // 2]
    return msgspec.structs.replace(golden, columns=columns, bases=bases, counts=counts)


@pytest.mark.parametrize("longest_ns", [2, 20_000, 10**7, 10**9, 10**14])
@pytest.mark.parametrize("records", [1, 63, 64, 300])
def test_what_is_put_into_a_bundle_comes_out_however_many_and_long_its_times(
    records: int, longest_ns: int
) -> None:
    body = noisy(records, longest_ns)
    assert decode_bundle(encode_bundle(body)).body == body


def test_a_bundle_of_many_records_is_smaller_than_with_one_code_for_all_its_bytes() -> None:
    body = noisy(400, 10**6)
    with_one_code = pack_content(msgspec.msgpack.encode(body), BUNDLE_VERSION)
    assert len(encode_bundle(body)) < 0.92 * len(with_one_code)


def test_bundles_that_repeat_an_origin_share_one_object() -> None:
    body = content()
    body[1] += 1
    one, other = decode_bundle(GOLDEN.read_bytes()), decode_bundle(sealed(body))
    assert one.origin is other.origin
    assert one.body.seq + 1 == other.body.seq


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_whatever_the_content_is_it_is_read_or_refused(data: st.DataObject) -> None:
    raw = bytearray(unpack_content(GOLDEN.read_bytes(), BUNDLE_VERSION))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode_any(pack_content(bytes(raw), BUNDLE_VERSION))
    except WireError:
        return
    assert isinstance(read, Bundle)
    assert isinstance(read.body, Body)
    assert sum(frame.count for frame in frames_of(read)) == read.count


def test_a_bundle_that_is_cut_short_is_told_by_its_place() -> None:
    (only,) = split_frames(GOLDEN.read_bytes()[:-3])
    assert isinstance(only, Rejected)
    assert only.offset == 0
