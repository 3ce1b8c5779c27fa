"""Settings that change while real ranks train; the test does what a sidecar does."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from paceline.ring import RingReader
from paceline.ring import layout as at
from paceline.ring.control import Setting, write_control
from paceline.vocabulary import EXCLUSIVE_PHASES, Flag, Op, RecordKind
from tests.integration.hooks.kit import JOBS, Ring, free_port, rank_environment, read_rings

RANKS = 2
AHEAD = 150
"""Steps of some 5 ms from asking to the agreed one: a step that is read may be 0.5 s old."""
SETTLED = 5
"""The first steps of DDP have collectives of their own."""
TIMEOUT_S = 60


class Job:
    """Two ranks of ``jobs/controlled.py``, told settings through their rings."""

    def __init__(self, directory: Path, loop: str, env: Mapping[str, str]) -> None:
        self.directory = directory
        port = free_port()
        self.processes = [
            subprocess.Popen(
                [sys.executable, str(JOBS / "controlled.py")],
                env=rank_environment(rank, RANKS, port, directory, {**env, "LOOP": loop}),
            )
            for rank in range(RANKS)
        ]
        self.readers: list[RingReader] = []
        self.wait(lambda: len(list((directory / "rings").glob("*.ring"))) == RANKS)
        paths = (directory / "rings").glob("*.ring")
        self.readers = sorted(map(RingReader, paths), key=lambda reader: reader.identity.rank)

    @property
    def step(self) -> int:
        return max(reader.word(at.STEP_OFFSET) for reader in self.readers)

    def ask(self, generation: int, level: str, stride: int = 1) -> int:
        """Agree on a step, ask for it, wait until all follow and some steps more have passed."""
        step = self.step + AHEAD
        setting = Setting(generation=generation, effective_step=step, level=level, stride=stride)
        for reader in self.readers:
            write_control(reader.path, reader.identity.incarnation, setting)
        self.wait(lambda: self.step > step + 40)
        return step

    def applied(self) -> list[tuple[int, int]]:
        words = (at.APPLIED_GENERATION_OFFSET, at.APPLIED_STEP_OFFSET)
        return [(reader.word(words[0]), reader.word(words[1])) for reader in self.readers]

    def finish(self) -> dict[int, Ring]:
        (self.directory / "stop").touch()
        assert [process.wait(TIMEOUT_S) for process in self.processes] == [0] * RANKS
        return read_rings(self.directory / "rings")

    def wait(self, is_so: object) -> None:
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_so():  # type: ignore[operator]
            assert all(process.poll() is None for process in self.processes), "a rank has ended"
            assert time.monotonic() < deadline_s
            time.sleep(0.02)

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        for reader in self.readers:
            reader.close()


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


def steps_of(ring: Ring) -> dict[int, bool]:
    """Return every step that has a record, and whether its collectives were recorded."""
    return {row.step: not row.flags & Flag.NO_COLLECTIVES for row in ring.steps()}


def collectives(ring: Ring) -> dict[int, Counter[tuple[object, ...]]]:
    """Return what was recorded of each step, as other ranks must have it too."""
    found: defaultdict[int, Counter[tuple[object, ...]]] = defaultdict(Counter)
    for row in ring.collectives():
        op = Op.SEND if row.code == Op.RECV else Op(row.code)
        found[row.step][ring.groups[row.group]["name"], op, row.seq] += 1
    return dict(found)


def phases(ring: Ring) -> set[int]:
    """Return the steps with phases of their own; a time without a core comes when it comes."""
    phases = (row for row in ring.records if row.kind == RecordKind.PHASE)
    return {row.step for row in phases if row.code in EXCLUSIVE_PHASES}


@pytest.mark.parametrize(
    "loop",
    [
        pytest.param("plain", marks=pytest.mark.slow),
        "accumulation",
        pytest.param("optimizers", marks=pytest.mark.slow),
        pytest.param("messages", marks=pytest.mark.slow),
    ],
)
def test_all_ranks_change_at_the_same_step_and_what_they_keep_matches(
    jobs: list[Job], tmp_path: Path, hooks: Mapping[str, str], loop: str
) -> None:
    jobs.append(job := Job(tmp_path, loop, hooks))
    job.wait(lambda: job.step > 20)
    strided = job.ask(1, "full", stride=4)
    off = job.ask(2, "off")
    again = job.ask(3, "collectives", stride=3)
    low = job.ask(4, "steps")
    last = job.ask(5, "full")
    assert job.applied() == [(5, last)] * RANKS
    rings = job.finish()

    own, other = steps_of(rings[0]), steps_of(rings[1])
    assert own == other
    end = max(own)
    kept = [step for step, whole in own.items() if whole]
    expected = [
        *range(strided),
        *(step for step in range(strided, off) if step % 4 == 0),
        *(step for step in range(again, low) if step % 3 == 0),
        *range(last, end + 1),
    ]
    assert sorted(kept) == expected
    assert sorted(own) == [*range(off), *range(again, end + 1)]
    told = collectives(rings[0])
    assert told == collectives(rings[1])
    # What was issued after the last step's end belongs to one that did not end.
    assert set(told) - {end + 1} == set(expected)
    for ring in rings.values():
        assert phases(ring) - {end + 1} == {*expected, *range(low, last)}
        assert ring.errors == 0
    assert_numbers_went_on(rings[0], set(range(SETTLED, end + 1)))


def assert_numbers_went_on(ring: Ring, steps: set[int]) -> None:
    """The n-th step begins with the same number whatever was recorded of those before."""
    first: dict[str, dict[int, int]] = defaultdict(dict)
    for row in ring.collectives():
        if row.step in steps and row.code != Op.SEND:
            of_group = first[ring.groups[row.group]["name"]]
            of_group[row.step] = min(of_group.get(row.step, row.seq), row.seq)
    for of_group in first.values():
        (begin, zero), (end, last) = min(of_group.items()), max(of_group.items())
        per_step = (last - zero) / (end - begin)
        assert per_step >= 1
        assert all(seq - zero == per_step * (step - begin) for step, seq in of_group.items())


def test_a_rank_without_an_optimizer_keeps_everything_that_others_keep(
    jobs: list[Job], tmp_path: Path, hooks: Mapping[str, str]
) -> None:
    jobs.append(job := Job(tmp_path, "without", hooks))
    job.wait(lambda: job.step > 20)
    strided = job.ask(1, "full", stride=5)
    assert job.applied()[0] == (1, strided)
    rings = job.finish()
    kept = {key for of_step in collectives(rings[0]).values() for key in of_step}
    all_of = {key for of_step in collectives(rings[1]).values() for key in of_step}
    assert kept < all_of
    assert not rings[1].steps()


def test_off_from_the_start_is_switched_on(
    jobs: list[Job], tmp_path: Path, hooks: Mapping[str, str]
) -> None:
    jobs.append(job := Job(tmp_path, "plain", {**hooks, "PACELINE_LEVEL": "off"}))
    job.wait(lambda: job.step > 20)
    on = job.ask(1, "full")
    rings = job.finish()
    for ring in rings.values():
        assert min(steps_of(ring)) == min(phases(ring)) == min(collectives(ring)) == on
    assert collectives(rings[0]) == collectives(rings[1])
