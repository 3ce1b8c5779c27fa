from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.ring import RingReader, RingWriter, new_identity
from paceline.ring.control import Setting, unpack_control
from paceline.sidecar.control import Control
from paceline.sidecar.follow import Follower
from paceline.sidecar.pack import pack
from paceline.sidecar.progress import Progress
from paceline.wire.codec import decode_frame
from paceline.wire.settings import LaunchSettings, read_settings

SETTINGS = LaunchSettings(
    job="job", run_id="run", attempt=0, generation=7, effective_step=40, level="steps", stride=5
)
AGREED = Setting(generation=7, effective_step=40, level="steps", stride=5)
AT_ONCE = Setting(generation=7, effective_step=0, level="steps", stride=5)


class Pace:
    interval_s = 1.0
    changes = 0

    def set_interval_s(self, interval_s: float) -> None:
        self.interval_s = interval_s
        self.changes += 1


class Rings:
    """Rings of a node with a follower each."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writers: list[RingWriter] = []
        self.followers: list[Follower] = []

    def add(self, rank: int = 0, job: str = "job", attempt: int = 0) -> RingWriter:
        identity = new_identity(
            job=job, run_id="run", attempt=attempt, rank=rank, local_rank=rank, world_size=4,
            node="n", boot_id="b", time_namespace=1, producer="hooks",
        )  # fmt: skip
        writer = RingWriter(self.directory, identity, capacity=8)
        self.writers.append(writer)
        reader = RingReader(writer.path)
        self.followers.append(Follower(reader, Progress(), "n"))
        return writer

    def close(self) -> None:
        for follower in self.followers:
            follower.close()
        for writer in self.writers:
            writer.close()


@pytest.fixture
def rings(tmp_path: Path) -> Iterator[Rings]:
    made = Rings(tmp_path)
    yield made
    made.close()


def asked(writer: RingWriter) -> Setting | None:
    return unpack_control(writer.control())


def test_every_ring_of_the_launch_is_asked_and_no_other(rings: Rings) -> None:
    own = [rings.add(0), rings.add(1)]
    others = [rings.add(0, job="other"), rings.add(0, attempt=1)]
    control = Control()
    control.apply(rings.followers)
    control.take([SETTINGS])
    control.apply(rings.followers)
    assert [asked(writer) for writer in own] == [AGREED, AGREED]
    assert [asked(writer) for writer in others] == [None, None]


def test_a_ring_that_comes_later_is_asked_too(rings: Rings) -> None:
    control = Control()
    control.take([SETTINGS])
    control.apply(rings.followers)
    writer = rings.add(3)
    control.apply(rings.followers)
    assert asked(writer) == AGREED


def test_a_rank_that_was_restarted_follows_at_once_because_it_counts_from_0(rings: Rings) -> None:
    control = Control()
    first = rings.add(2)
    control.apply(rings.followers)
    first.close()
    rings.followers.pop().close()
    second = rings.add(2)
    control.take([SETTINGS])
    control.apply(rings.followers)
    assert asked(second) == AT_ONCE


def test_a_sidecar_that_was_restarted_changes_nothing_that_was_agreed(rings: Rings) -> None:
    writer = rings.add()
    for step in (40, 60):  # the second could only be another collector's idea
        control = Control()
        control.take([LaunchSettings(**{**as_dict(SETTINGS), "effective_step": step})])
        control.apply(rings.followers)
    assert asked(writer) == AGREED


def test_a_ring_that_cannot_be_written_is_told_once_and_the_others_are_asked(
    rings: Rings, caplog: pytest.LogCaptureFixture
) -> None:
    gone, stays = rings.add(0), rings.add(1)
    gone.path.unlink()
    control = Control()
    control.take([SETTINGS])
    with caplog.at_level(logging.WARNING, "paceline.sidecar"):
        for _ in range(3):
            control.apply(rings.followers)
    warned = [one.message for one in caplog.records if one.levelno == logging.WARNING]
    assert [message.startswith("rank 0") for message in warned] == [True]
    assert asked(stays) == AGREED


def test_the_job_that_wants_telemetry_most_often_sets_the_pace_of_its_node(rings: Rings) -> None:
    pace = Pace()
    control = Control(pace)
    rings.add(job="job")
    rings.add(job="other")
    control.take([with_interval("job", 0.1), with_interval("other", 30.0)])
    control.apply(rings.followers)
    assert pace.interval_s == 0.1
    control.take([with_interval("job", 0.0)])
    control.apply(rings.followers)
    control.apply(rings.followers)
    assert (pace.interval_s, pace.changes) == (30.0, 2)
    control.take([with_interval("other", 0.0)])
    control.apply(rings.followers)
    assert pace.interval_s == 0.0
    control.take([with_interval("job", None)])
    control.apply(rings.followers)
    assert pace.interval_s == 1.0


def test_what_the_writer_follows_travels_with_its_frames(rings: Rings) -> None:
    writer = rings.add()
    follower = rings.followers[0]
    before = decode_frame(pack(follower.chunk(), 0, with_info=False)[0])
    assert (before.control_generation, before.control_step) == (0, 0)
    writer.applied(7, 41)
    after = decode_frame(pack(follower.chunk(), 1, with_info=False)[0])
    assert (after.control_generation, after.control_step) == (7, 41)
    writer.applied((1 << 64) - 1, (1 << 64) - 1)  # a writer may be mad; its frames are not
    decode_frame(pack(follower.chunk(), 2, with_info=False)[0])


GOOD = {
    "job": "job", "run_id": "run", "attempt": 0, "generation": 7, "effective_step": 40,
    "level": "steps", "stride": 5, "telemetry_interval_s": None,
}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [{"generation": 0}, {"effective_step": -1}, {"effective_step": 1 << 40}, {"stride": 0},
     {"stride": True}, {"stride": "5"}, {"level": "everything"}, {"attempt": None},
     {"telemetry_interval_s": -1}, {"telemetry_interval_s": 1e9}, {"job": 5}],
)  # fmt: skip
def test_a_setting_that_makes_no_sense_is_left_out_and_its_neighbours_are_followed(
    rings: Rings, change: dict[str, Any]
) -> None:
    writer, other = rings.add(), rings.add(job="other")
    control = Control()
    control.take(read_settings([{**GOOD, **change}, 5, None, {**GOOD, "job": "other"}]))
    control.apply(rings.followers)
    assert (asked(writer), asked(other)) == (None, AGREED)


@pytest.mark.parametrize("answer", [None, {}, {"level": "full", "stride": 1}, "x", 5])
def test_an_answer_of_an_older_collector_asks_for_nothing(answer: object) -> None:
    assert read_settings(answer) == []


def test_a_key_of_a_newer_collector_is_ignored() -> None:
    assert read_settings([{**GOOD, "colour": "red"}]) == [SETTINGS]


def as_dict(settings: LaunchSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in GOOD}


def with_interval(job: str, interval_s: float | None) -> LaunchSettings:
    return LaunchSettings(**{**GOOD, "job": job, "telemetry_interval_s": interval_s})
