"""What both writers of a ring do at the edges: the Python one and the plugin's in C."""

from __future__ import annotations

import os
import struct
import subprocess
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import RingError
from paceline.ring import Record, RingIdentity, RingReader, RingWriter, new_identity
from paceline.ring import layout as at
from paceline.ring.control import Setting, pack_control
from paceline.ring.writer import ring_name
from tests.contract.c_ring import CRing

WriterOf = Callable[..., Any]


def identity(job: str = "job") -> RingIdentity:
    return new_identity(
        job=job,
        run_id="run",
        attempt=4,
        rank=2,
        local_rank=0,
        world_size=8,
        node="node",
        boot_id="boot",
        time_namespace=1,
        producer="test",
    )


@pytest.fixture(params=["python", "c"])
def writer_of(request: pytest.FixtureRequest) -> WriterOf:
    if request.param == "python":
        return RingWriter
    return partial(CRing, library=request.getfixturevalue("plugin_library"))


@pytest.fixture
def ring(writer_of: WriterOf, tmp_path: Path) -> Iterator[Any]:
    writer = writer_of(tmp_path / "a" / "b", identity(), capacity=8)
    yield writer
    writer.close()


@pytest.fixture
def reader(ring: Any) -> Iterator[RingReader]:
    opened = RingReader(ring.path)
    yield opened
    opened.close()


def test_directories_above_are_made_and_only_the_last_is_private(ring: Any, tmp_path: Path) -> None:
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a").stat().st_mode & 0o777 != 0o700 or os.umask(0o22) == 0o77
    assert list((tmp_path / "a" / "b").iterdir()) == [ring.path]


@pytest.mark.parametrize("job", ["../../etc/passwd", "jöb €", "x" * 200, "a b/c"])
def test_name_of_the_file_is_made_of_who_writes(
    writer_of: WriterOf, tmp_path: Path, job: str
) -> None:
    who = identity(job)
    writer = writer_of(tmp_path, who, capacity=4)
    assert writer.path == tmp_path / ring_name(who)
    writer.close()


def test_full_in_flight_table_is_counted_and_free_again(ring: Any, reader: RingReader) -> None:
    slots = [ring.begin(1, 0, seq, 0, -1, 8, 100 + seq) for seq in range(at.INFLIGHT_SLOTS + 3)]
    assert slots[-3:] == [-1, -1, -1]
    assert sorted(slots[:-3]) == list(range(at.INFLIGHT_SLOTS))
    assert reader.word(at.DROPPED_INFLIGHT_OFFSET) == 3
    assert {entry.seq for entry in reader.inflight()} == set(range(at.INFLIGHT_SLOTS))
    for slot in slots:
        ring.finish(slot)
    assert reader.inflight() == []
    assert ring.begin(1, 0, 99, 0, -1, 8, 100) >= 0


def test_full_metadata_is_counted_and_what_fitted_is_read(ring: Any, reader: RingReader) -> None:
    fitted = 0
    while ring.meta({"group": fitted, "name": "x" * 1000}):
        fitted += 1
    assert not ring.meta({"more": "y" * 1000})
    assert not ring.meta({"more": "z" * 200_000})
    entries, corrupt = reader.meta()
    assert [entry["group"] for entry in entries] == list(range(fitted))
    assert corrupt == 0
    assert reader.word(at.DROPPED_META_OFFSET) == 3


def test_oldest_records_are_overwritten_when_the_ring_is_full(
    ring: Any, reader: RingReader
) -> None:
    for seq in range(20):
        ring.record(1, 2, 3, seq, 5, -1, 7, 8, 9, 10, 11, 12)
    batch = reader.poll()
    assert batch.records == [
        Record(1, 2, 3, seq, 5, -1, 7, 8, 9, 10, 11, 12) for seq in range(13, 20)
    ]
    assert batch.overwritten == 13


def test_heartbeat_and_anchor_are_read(ring: Any, reader: RingReader) -> None:
    before = reader.anchor()
    ring.heartbeat(17)
    ring.anchor()
    assert reader.word(at.STEP_OFFSET) == 17
    assert reader.word(at.HEARTBEAT_OFFSET) >= before.mono_ns
    assert reader.word(at.ANCHOR_COUNT_OFFSET) == 2
    assert reader.anchor().mono_ns >= before.mono_ns
    assert abs(reader.anchor().wall_ns - before.wall_ns) < 60 * 10**9


def test_closed_ring_stays_readable(ring: Any, reader: RingReader) -> None:
    ring.record(3, 0, 0, 0, 0, -1, 0, 1, 2)
    ring.close()
    ring.close()
    assert reader.closed_by_writer
    assert len(reader.poll().records) == 1


@pytest.mark.parametrize("capacity", [0, 60_000])
def test_capacity_out_of_range_is_refused(
    writer_of: WriterOf, tmp_path: Path, capacity: int
) -> None:
    with pytest.raises(RingError):
        writer_of(tmp_path, identity(), capacity=capacity)


def test_directory_that_cannot_be_made_is_refused(writer_of: WriterOf, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RingError):
        writer_of(tmp_path / "file" / "rings", identity())


def test_full_directory_is_an_error_and_no_bus_error(writer_of: WriterOf, tmp_path: Path) -> None:
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tiny)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root that may mount a tmpfs: run as root with CAP_SYS_ADMIN")
    try:
        with pytest.raises(RingError, match="No space left"):
            writer_of(tiny, identity())
        assert list(tiny.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tiny)], check=True)


def written(path: Path, block: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(at.CONTROL_OFFSET)
        file.write(block)


def test_c_writer_follows_a_control_block_and_says_so(plugin_library: Path, tmp_path: Path) -> None:
    ring = CRing(tmp_path, identity(), capacity=4, library=plugin_library)
    reader = RingReader(ring.path)
    assert ring.control() == -1
    setting = Setting(generation=7, effective_step=120, level="collectives", stride=1)
    torn = bytearray(pack_control(setting))
    torn[9] ^= 1
    written(ring.path, bytes(torn))
    assert ring.control() == -1
    assert reader.word(at.APPLIED_GENERATION_OFFSET) == 0
    written(ring.path, pack_control(setting))
    assert ring.control() == 2
    assert reader.word(at.APPLIED_GENERATION_OFFSET) == 7
    assert reader.word(at.APPLIED_STEP_OFFSET) == 120
    reader.close()
    ring.close()


def test_c_writer_ignores_a_level_that_it_does_not_know(
    plugin_library: Path, tmp_path: Path
) -> None:
    ring = CRing(tmp_path, identity(), capacity=4, library=plugin_library)
    fields = at.CONTROL.pack(8, 0, 9, 1)
    written(ring.path, fields + struct.pack("<I", zlib.crc32(fields)))
    assert ring.control() == -1
    ring.close()
