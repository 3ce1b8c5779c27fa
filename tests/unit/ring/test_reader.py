from __future__ import annotations

from pathlib import Path

import pytest

from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring import layout as at

CAPACITY = 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A ring of 60 records whose writer is gone."""
    identity = new_identity(
        job="job", run_id="run", attempt=0, rank=0, local_rank=0, world_size=1, node="node",
        boot_id="boot", time_namespace=1, producer="test",
    )  # fmt: skip
    writer = RingWriter(tmp_path, identity, CAPACITY)
    for seq in range(60):
        writer.record(1, 1, 0, seq, 0, -1, 8, seq + 1, seq + 2)
    writer.close()
    return writer.path


def damage(path: Path, index: int, offset: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at.RECORDS_OFFSET + index * at.RECORD_BYTES + offset)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 0x40]))


@pytest.mark.parametrize("bad", [{0}, {59}, {10}, {10, 11}, {3, 30, 31, 32, 58}, set(range(60))])
@pytest.mark.parametrize("offset", [0, at.RECORD_CRC_OFFSET, at.RECORD_COMMIT_OFFSET + 7])
def test_records_around_damaged_ones_are_read_and_the_damaged_ones_counted(
    path: Path, bad: set[int], offset: int
) -> None:
    for index in bad:
        damage(path, index, offset)
    reader = RingReader(path)
    batch = reader.poll()
    assert [record.seq for record in batch.records] == sorted(set(range(60)) - bad)
    # A damaged commit word that became larger looks like a slot that was written again.
    assert batch.torn + batch.overwritten == len(bad)
    assert reader.tail == 60
    reader.close()


@pytest.mark.parametrize("limit", [1, 2, 7, 59, 60, 1000])
def test_any_limit_gives_the_same_records(path: Path, limit: int) -> None:
    reader = RingReader(path)
    found = []
    while batch := reader.poll(limit).records:
        assert len(batch) <= limit
        found += batch
    assert [record.seq for record in found] == list(range(60))
    reader.close()
