from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from paceline import clock
from paceline.errors import RingError
from paceline.ring import RingIdentity, RingReader, RingWriter, new_identity
from paceline.ring import layout as at
from paceline.ring.writer import ring_name


def identity(job: str = "job") -> RingIdentity:
    return new_identity(
        job=job,
        run_id="run",
        attempt=0,
        rank=0,
        local_rank=0,
        world_size=1,
        node="node",
        boot_id="boot",
        time_namespace=1,
        producer="test",
    )


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[RingWriter]:
    writer = RingWriter(tmp_path, identity(), capacity=8)
    yield writer
    writer.close()


@pytest.fixture
def reader(ring: RingWriter) -> Iterator[RingReader]:
    opened = RingReader(ring.path)
    yield opened
    opened.close()


def test_in_flight_table_that_is_full_is_counted_and_goes_on(
    ring: RingWriter, reader: RingReader
) -> None:
    slots = [ring.begin(1, 0, seq, 0, -1, 8, 100 + seq) for seq in range(at.INFLIGHT_SLOTS + 3)]
    assert slots[-3:] == [-1, -1, -1]
    assert reader.word(at.DROPPED_INFLIGHT_OFFSET) == 3
    assert len(reader.inflight()) == at.INFLIGHT_SLOTS
    for slot in slots:
        ring.finish(slot)
    assert reader.inflight() == []
    assert ring.begin(1, 0, 99, 0, -1, 8, 100) >= 0


def test_metadata_that_is_full_is_counted_and_what_fitted_is_read(
    ring: RingWriter, reader: RingReader
) -> None:
    fitted = 0
    while ring.meta({"group": fitted, "name": "x" * 1000}):
        fitted += 1
    assert not ring.meta({"more": "y" * 1000})
    entries, corrupt = reader.meta()
    assert [entry["group"] for entry in entries] == list(range(fitted))
    assert corrupt == 0
    assert reader.word(at.DROPPED_META_OFFSET) == 2


def test_wall_clock_that_steps_backwards_moves_the_anchor_and_no_record(
    ring: RingWriter, reader: RingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = reader.anchor()
    ring.record(1, 1, 0, 0, 0, -1, 8, before.mono_ns + 10, before.mono_ns + 20)
    monkeypatch.setattr(clock, "wall_ns", lambda: before.wall_ns - 3600 * 10**9)
    ring.anchor()
    after = reader.anchor()
    assert after.wall_ns == before.wall_ns - 3600 * 10**9
    assert after.mono_ns >= before.mono_ns
    (record,) = reader.poll().records
    assert record.end_ns - record.start_ns == 10
    assert after.to_wall_ns(after.mono_ns + 5) == after.wall_ns + 5


def test_closed_ring_stays_readable_and_takes_nothing_more(
    ring: RingWriter, reader: RingReader
) -> None:
    ring.record(3, 0, 0, 0, 0, -1, 0, 1, 2)
    ring.close()
    ring.close()
    assert reader.closed_by_writer
    assert len(reader.poll().records) == 1
    with pytest.raises(ValueError, match="released"):
        ring.record(3, 0, 0, 0, 1, -1, 0, 3, 4)


@pytest.mark.parametrize(("group", "start_ns", "torn"), [(1 << 20, 1, 0), (0, -1, 1)])
def test_value_that_does_not_fit_its_field_leaves_the_ring_usable(
    ring: RingWriter, reader: RingReader, group: int, start_ns: int, torn: int
) -> None:
    with pytest.raises(Exception, match=r"format|range|argument|int"):
        ring.record(1, 1, group, 0, 0, -1, 0, start_ns, 2)
    ring.record(1, 1, 0, 1, 0, -1, 0, 3, 4)
    found = [reader.poll() for _ in range(25)]
    assert sum(batch.torn for batch in found) == torn
    assert [record.seq for batch in found for record in batch.records] == [1]


@pytest.mark.parametrize("capacity", [0, -1, 60_000])
def test_capacity_out_of_range_is_refused(tmp_path: Path, capacity: int) -> None:
    with pytest.raises(RingError, match="choose a smaller capacity"):
        RingWriter(tmp_path, identity(), capacity=capacity)


def test_default_ring_is_at_most_4_mib() -> None:
    assert at.file_bytes(at.DEFAULT_CAPACITY) <= at.MAX_FILE_BYTES


def test_directory_that_cannot_be_made_is_refused_with_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RingError, match="PACELINE_RUNTIME_DIR"):
        RingWriter(tmp_path / "file" / "rings", identity())


def test_name_of_a_ring_is_never_a_path() -> None:
    assert "/" not in ring_name(identity(job="../../etc/passwd"))


@pytest.mark.parametrize("field", ["job", "run_id", "node"])
def test_an_identity_that_cannot_be_written_leaves_no_file(tmp_path: Path, field: str) -> None:
    with pytest.raises(RingError):
        RingWriter(tmp_path, replace(identity(), **{field: "odd\udcff"}))  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_full_directory_is_an_error_and_no_bus_error(tmp_path: Path) -> None:
    tiny = tmp_path / "tiny"
    tiny.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(tiny)]
    if os.getuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root that may mount a tmpfs: run as root with CAP_SYS_ADMIN")
    try:
        with pytest.raises(RingError, match="free space there"):
            RingWriter(tiny, identity())
        assert list(tiny.iterdir()) == []
    finally:
        subprocess.run(["umount", str(tiny)], check=True)
