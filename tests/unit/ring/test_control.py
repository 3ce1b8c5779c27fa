from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.errors import RingError
from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring import layout as at
from paceline.ring.control import (
    CONTROL_BYTES,
    MAX_STRIDE,
    Setting,
    pack_control,
    unpack_control,
    write_control,
)
from paceline.settings import LEVELS

SETTING = Setting(generation=1_800_000_000, effective_step=120, level="collectives", stride=5)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    identity = new_identity(
        job="job", run_id="run", attempt=0, rank=0, local_rank=0, world_size=1, node="node",
        boot_id="boot", time_namespace=1, producer="test",
    )  # fmt: skip
    writer = RingWriter(tmp_path, identity, capacity=8)
    yield writer
    writer.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_setting_comes_out_as_it_went_in(level: str) -> None:
    setting = Setting(generation=7, effective_step=2**32 - 1, level=level, stride=MAX_STRIDE)
    assert unpack_control(pack_control(setting)) == setting


@pytest.mark.parametrize("byte", range(CONTROL_BYTES))
def test_a_changed_byte_anywhere_is_noticed(byte: int) -> None:
    block = bytearray(pack_control(SETTING))
    block[byte] ^= 0x10
    assert unpack_control(bytes(block)) is None


@pytest.mark.parametrize(
    ("generation", "step", "level", "stride"),
    [(0, 5, 1, 1), (1 << 63, 5, 1, 1), (1, 1 << 32, 1, 1), (1, 5, 4, 1), (1, 5, 1, 0),
     (1, 5, 1, MAX_STRIDE + 1)],
)  # fmt: skip
def test_values_out_of_range_are_refused_however_right_their_checksum(
    generation: int, step: int, level: int, stride: int
) -> None:
    import zlib

    fields = at.CONTROL.pack(generation, step, level, stride)
    assert unpack_control(fields + at.U32.pack(zlib.crc32(fields))) is None


def test_a_written_setting_is_seen_by_the_writer_and_nothing_else_of_its_ring_changes(
    ring: RingWriter,
) -> None:
    ring.record(3, 0, 0, 0, 0, -1, 0, 10, 20)
    before = ring.path.read_bytes()
    assert ring.control_generation() == 0
    write_control(ring.path, ring.identity.incarnation, SETTING)
    assert ring.control_generation() == SETTING.generation
    assert unpack_control(ring.control()) == SETTING
    after = ring.path.read_bytes()
    end = at.CONTROL_OFFSET + CONTROL_BYTES
    assert (after[: at.CONTROL_OFFSET], after[end:]) == (before[: at.CONTROL_OFFSET], before[end:])
    assert before[at.CONTROL_OFFSET : end] == bytes(CONTROL_BYTES)


def test_what_is_followed_can_be_read_from_outside(ring: RingWriter) -> None:
    ring.applied(SETTING.generation, 121)
    reader = RingReader(ring.path)
    applied = (reader.word(at.APPLIED_GENERATION_OFFSET), reader.word(at.APPLIED_STEP_OFFSET))
    reader.close()
    assert applied == (SETTING.generation, 121)


def test_another_ring_under_the_same_name_is_left_alone(ring: RingWriter) -> None:
    with pytest.raises(RingError, match="not the ring"):
        write_control(ring.path, b"x" * 16, SETTING)
    assert ring.control_generation() == 0


def test_what_is_no_ring_is_left_alone(tmp_path: Path, ring: RingWriter) -> None:
    incarnation = ring.identity.incarnation
    short, other, link = (tmp_path / name for name in ("short.ring", "other.ring", "link.ring"))
    short.write_bytes(b"PACERING")
    other.write_bytes(bytes(2 * at.HEADER_BYTES))
    os.symlink(ring.path, link)
    for path in (short, other, link, tmp_path / "none.ring"):
        before = path.read_bytes() if path.exists() else b""
        with pytest.raises(RingError):
            write_control(path, incarnation, SETTING)
        assert (path.read_bytes() if path.exists() else b"") == before
