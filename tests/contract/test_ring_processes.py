"""Rings between real processes: a writer that is killed, laps its reader, or has many threads.

Every test runs over both writers, Python's and C's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.ring import Record, RingReader
from paceline.ring import layout as at
from tests.conftest import ROOT
from tests.contract.c_ring import LIBRARY_ENV

HEAD = """
import os, sys, threading, time
from pathlib import Path
from paceline.ring import RingWriter, new_identity
if "TEST_PLUGIN_LIBRARY" in os.environ:
    from tests.contract.c_ring import CRing as RingWriter
identity = new_identity(job="j", run_id="r", attempt=0, rank=0, local_rank=0, world_size=1,
                        node="n", boot_id="b", time_namespace=1, producer="t")
ring = RingWriter(Path(sys.argv[1]), identity, int(sys.argv[2]))
print(ring.path, flush=True)
def write(value):
    ring.record(1, 1, 0, value, value & 0xFFFF, -1, value * 3, value + 1, value + 2, 0, 0, 0)
"""
FOREVER = """
value = 0
while True:
    write(value)
    value += 1
"""
PACED = """
for value in range(3000):
    write(value)
    if value % 10 == 0:
        time.sleep(0.001)
ring.close()
print("closed", flush=True)
time.sleep(60)
"""
THREADS = """
def many(base):
    for value in range(base, base + 5000):
        write(value)
sys.setswitchinterval(1e-6)
threads = [threading.Thread(target=many, args=(n * 100_000,)) for n in range(4)]
for one in threads: one.start()
for one in threads: one.join()
print("done", flush=True)
time.sleep(60)
"""


class Writer:
    def __init__(self, directory: Path, body: str, capacity: int, library: Path | None) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HEAD + body, str(directory), str(capacity)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **({LIBRARY_ENV: str(library)} if library else {})},
        )
        self.path = Path(self.line())
        self.reader = RingReader(self.path)

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.reader.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "rings"


class Writers:
    """Starts writers of one language, and ends them."""

    def __init__(self, directory: Path, library: Path | None) -> None:
        self._directory = directory
        self._library = library
        self._started: list[Writer] = []

    def start(self, body: str, capacity: int) -> Writer:
        self._started.append(Writer(self._directory, body, capacity, self._library))
        return self._started[-1]

    def stop(self) -> None:
        for one in self._started:
            one.stop()


@pytest.fixture(params=["python", "c"])
def writers(request: pytest.FixtureRequest, directory: Path) -> Iterator[Writers]:
    library = request.getfixturevalue("plugin_library") if request.param == "c" else None
    started = Writers(directory, library)
    yield started
    started.stop()


def is_whole(record: Record) -> bool:
    value = record.seq
    return (record.payload_bytes, record.start_ns, record.end_ns, record.step) == (
        value * 3,
        value + 1,
        value + 2,
        value & 0xFFFF,
    )


def test_writer_killed_while_writing_leaves_only_whole_records(writers: Writers) -> None:
    for _ in range(3):
        writer = writers.start(FOREVER, 4096)
        time.sleep(0.1)
        assert writer.reader.writer_alive()
        writer.process.kill()
        writer.process.wait()
        assert not writer.reader.writer_alive()
        assert not writer.reader.closed_by_writer
        records, lost = [], 0
        while (batch := writer.reader.poll()).records or batch.overwritten or batch.torn:
            records += batch.records
            lost += batch.overwritten + batch.torn
        assert all(map(is_whole, records))
        assert batch.torn <= 1
        numbers = [record.seq for record in records]
        assert numbers == sorted(set(numbers))
        assert 0 <= writer.reader.tail - (len(numbers) + lost) <= 1
        assert numbers[-1] + 1 in (writer.reader.tail, writer.reader.tail - 1)


def test_lapped_reader_counts_every_record_as_read_or_overwritten(writers: Writers) -> None:
    writer = writers.start(FOREVER, 64)
    read = overwritten = torn = 0
    last = -1
    deadline_s = time.monotonic() + 1.0
    while time.monotonic() < deadline_s:
        batch = writer.reader.poll()
        assert all(map(is_whole, batch.records))
        numbers = [record.seq for record in batch.records]
        assert numbers == sorted(numbers)
        assert not numbers or numbers[0] > last
        last = numbers[-1] if numbers else last
        read += len(numbers)
        overwritten += batch.overwritten
        torn += batch.torn
        time.sleep(0.001)
    assert overwritten > 0
    assert read > 0
    assert read + overwritten + torn == writer.reader.tail


def test_nothing_is_missed_by_a_reader_that_keeps_up(writers: Writers) -> None:
    writer = writers.start(PACED, 4096)
    records: list[Record] = []
    while not writer.reader.closed_by_writer:
        records += writer.reader.poll().records
        time.sleep(0.005)
    records += writer.reader.poll().records
    assert [record.seq for record in records] == list(range(3000))
    assert writer.line() == "closed"
    assert not writer.reader.writer_alive()  # it said goodbye, though its process still runs


def test_several_threads_write_one_ring_without_losing_a_record(writers: Writers) -> None:
    writer = writers.start(THREADS, 32768)
    assert writer.line() == "done"
    records: list[Record] = []
    while (batch := writer.reader.poll()).records:
        records += batch.records
        assert (batch.overwritten, batch.torn) == (0, 0)
    expected = {n * 100_000 + i for n in range(4) for i in range(5000)}
    assert len(records) == len(expected)
    assert {record.seq for record in records} == expected
    assert all(map(is_whole, records))


def test_reader_can_go_on_where_another_one_stopped(writers: Writers) -> None:
    writer = writers.start(PACED, 4096)
    assert writer.line() == "closed"
    writer.reader.poll(limit=1000)
    second = RingReader(writer.path)
    second.seek(writer.reader.tail)
    assert [r.seq for r in second.poll().records] == list(range(1000, 3000))
    second.close()


def test_ring_file_is_private_to_its_user(directory: Path, writers: Writers) -> None:
    writer = writers.start(PACED, 64)
    assert writer.path.stat().st_mode & 0o777 == 0o600
    assert directory.stat().st_mode & 0o777 == 0o700
    assert writer.path.stat().st_size == at.file_bytes(64)
