from __future__ import annotations

from pathlib import Path

import pytest

from paceline.event_log import LogTelemetry
from paceline.wire.codec import decode_frame
from paceline_service.commands.frames import ReplayFrames
from paceline_service.importers import events
from paceline_service.importers.events import read_event_log
from paceline_service.importers.offline import analyze_log
from tests.unit.importers.logs import small_job, write


def sample(rank: int, time_ns: int, **values: object) -> dict[str, object]:
    return {"rank": rank, "time_ns": time_ns, "telemetry": values}


def test_values_that_no_frame_can_hold_are_left_out(tmp_path: Path) -> None:
    lines = [
        *small_job(),
        sample(0, 5, power_w=1.5, odd=None, nested={"a": 1}, truth=True, big=1 << 70),
        sample(0, 6, odd=None),
        sample(0, -7, power_w=1.5),
    ]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert log.telemetry == [LogTelemetry(rank=0, time_ns=5, values={"power_w": 1.5})]
        assert log.telemetry_table().names == [(0, "power_w")]


def test_more_values_than_memory_should_hold_are_counted_and_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "MAX_TELEMETRY_VALUES", 10)
    lines = [*small_job(), *(sample(0, n, a=1, b=2) for n in range(8))]
    with read_event_log([write(tmp_path / "a", lines)]) as log:
        assert len(log.telemetry) == 5
        assert "3 telemetry samples were left out" in analyze_log(log).notes


def test_telemetry_changes_no_verdict(tmp_path: Path) -> None:
    with read_event_log([write(tmp_path / "a", small_job())]) as log:
        without = analyze_log(log).to_dict()
    hot = [sample(1, n, throttle_reasons=["hw_slowdown"], gpu_lost=1) for n in range(50)]
    with read_event_log([write(tmp_path / "b", [*small_job(), *hot])]) as log:
        assert analyze_log(log).to_dict() == without


def test_a_replay_sends_every_sample_once_also_those_behind_the_last_record(
    tmp_path: Path,
) -> None:
    late = 1 << 50
    wide = {f"name_{n}": n for n in range(100)}
    samples = [sample(0, n, power_w=n) for n in range(2000)]
    samples += [sample(0, late + n, **wide) for n in range(500)]
    with read_event_log([write(tmp_path / "a", [*small_job(), *samples])]) as log:
        frames = ReplayFrames(log, job="again", end_wall_ns=10**18)
        packed = [
            f for part in log.rounds() for records in part for f in frames.of_records(records)
        ]
        packed += [frame for rank in log.ranks for frame in frames.last_of(rank)]
        sent = [
            (one.time_ns, one.values) for frame in packed for one in decode_frame(frame).telemetry
        ]
    assert sent == [(one["time_ns"], one["telemetry"]) for one in samples]
