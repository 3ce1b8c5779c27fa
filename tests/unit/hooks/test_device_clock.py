from __future__ import annotations

from pathlib import Path

import pytest

from paceline.hooks.device_clock import MAX_HOP_NS, DeviceClock
from tests.simulator.gpu import MS
from tests.unit.hooks.device_kit import Rank


def test_an_event_lies_between_its_record_and_the_look_that_found_it() -> None:
    clock = DeviceClock()
    clock.rebase(None, 1_000, 9_000)
    assert 1_000 <= clock.host_ns(0) <= 9_000
    assert clock.error_ns <= 8_000


def test_each_event_narrows_the_bounds() -> None:
    clock = DeviceClock()
    clock.rebase(None, 0, 100 * MS)
    clock.bound(10 * MS, 15 * MS, 200 * MS)  # so the reference was at 5 ms or later
    clock.bound(20 * MS, 0, 26 * MS)  # and at 6 ms or earlier
    assert 4.9 * MS < clock.host_ns(0) < 6.1 * MS
    assert clock.error_ns < 1.2 * MS


def test_an_idle_stream_counts_more_than_a_late_look() -> None:
    clock = DeviceClock()
    clock.rebase(None, 0, 100 * MS)
    assert clock.host_ns(0) < 10_000


def test_a_new_reference_inherits_what_was_known() -> None:
    clock = DeviceClock()
    clock.rebase(None, 1_000, 9_000)
    clock.rebase(1_000 * MS, 1_000 * MS - 50 * MS, 1_000 * MS + 50 * MS)
    assert clock.axis_ns == 1_000 * MS
    assert clock.error_ns < 250_000  # 100 parts in a million of a second, each way


def test_after_a_long_rest_nothing_is_inherited() -> None:
    clock = DeviceClock()
    clock.rebase(None, 1_000, 9_000)
    later = MAX_HOP_NS + 1
    clock.rebase(later, later + 5_000 * MS, later + 5_001 * MS)
    assert clock.host_ns(0) >= later + 5_000 * MS


def test_clocks_that_contradict_each_other_are_related_anew() -> None:
    clock = DeviceClock()
    clock.rebase(None, 1_000, 9_000)
    clock.rebase(MS, 500 * MS, 501 * MS)
    assert 500 * MS <= clock.host_ns(0) <= 501 * MS


@pytest.mark.parametrize("drift_ppm", [-80.0, 0.0, 80.0])
@pytest.mark.parametrize("busy", [False, True])
def test_times_stay_right_for_hours_though_the_clocks_drift(
    tmp_path: Path, drift_ppm: float, busy: bool
) -> None:
    rank = Rank(tmp_path, drift_ppm=drift_ppm)
    truth = []
    for second in range(2_000):
        if busy:
            rank.gpu.work(50 * MS)
        truth.append(rank.sync(3 * MS))
        rank.poll(100 * MS)
        if second % 500 == 0:
            rank.host.advance(3_600_000 * MS)
    rank.poll()
    worst = 0
    for record, call in zip(rank.records(), truth, strict=True):
        worst = max(worst, abs(record.start_ns - rank.gpu.host_time(call.begin_ns)))
        assert record.end_ns - record.start_ns == pytest.approx(3 * MS, abs=5_000)
    assert worst < 50_000
    rank.close()


def test_without_events_of_our_own_the_jobs_bound_the_clock(tmp_path: Path) -> None:
    rank = Rank(tmp_path, choice="on", env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, drift_ppm=80)
    truth = []
    for _ in range(600):
        truth.append(rank.sync(3 * MS))
        rank.poll(100 * MS)
    worst = max(
        abs(record.start_ns - rank.gpu.host_time(call.begin_ns))
        for record, call in zip(rank.records(), truth, strict=False)
    )
    assert worst < 100_000
    rank.close()
