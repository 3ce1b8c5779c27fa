from __future__ import annotations

import threading
from pathlib import Path

import pytest

from paceline.settings import AgentSettings
from tests.simulator.gpu import MS
from tests.unit.hooks.device_kit import Rank


@pytest.mark.parametrize(
    ("choice", "env", "level", "plugin", "timed"),
    [
        ("auto", {}, "full", False, True),
        ("auto", {}, "collectives", False, False),
        ("auto", {}, "full", True, False),
        ("on", {}, "full", True, True),
        ("off", {}, "full", False, False),
        ("auto", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "full", False, False),
        ("auto", {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}, "full", False, True),
        ("on", {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "full", False, True),
    ],
)
def test_collectives_are_timed_where_nothing_else_does_and_nothing_can_break(
    tmp_path: Path, choice: str, env: dict[str, str], level: str, plugin: bool, timed: bool
) -> None:
    rank = Rank(tmp_path, choice=choice, env=env, level=level)
    rank.plugin_active = plugin
    assert (rank.sync(MS).entry.timed is not None) is timed
    rank.close()


def test_timers_follow_the_level_while_the_job_runs(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    assert rank.sync(MS).entry.timed is not None
    rank.recorder.level = "collectives"
    rank.poll()
    assert rank.sync(MS).entry.timed is None
    rank.recorder.level = "full"
    rank.poll()
    assert rank.sync(MS).entry.timed is not None
    rank.close()


def test_with_one_hardware_queue_no_event_is_put_aside(tmp_path: Path) -> None:
    rank = Rank(tmp_path, choice="on", env={"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    for _ in range(50):
        rank.sync(MS)
        rank.poll()
    assert rank.gpu.recorded_aside == 0
    assert len(rank.records()) == 50
    rank.close()


def test_the_device_is_named_once_in_the_metadata(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    for _ in range(5):
        rank.sync(MS)
        rank.poll()
    entries = [entry["info"] for entry in rank.reader.meta()[0] if "gpu_uuid" in entry["info"]]
    assert entries == [{"gpu_uuid": "GPU-0"}]
    rank.close()


def test_an_idle_device_is_not_asked(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    rank.sync(MS)
    rank.poll()
    assert rank.device.waiting == 0
    asked = rank.gpu.queried
    for _ in range(100):
        rank.poll()
    assert rank.gpu.queried == asked
    rank.close()


def test_many_threads_may_issue_at_once(tmp_path: Path) -> None:
    rank = Rank(tmp_path)
    threads = [
        threading.Thread(target=lambda: [rank.sync(1_000) for _ in range(100)]) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        rank.poll(MS)
    for thread in threads:
        thread.join()
    rank.poll()
    assert len(rank.records()) == 800
    assert rank.errors() == 0
    rank.close()


@pytest.mark.parametrize(("text", "choice"), [("", "auto"), ("on", "on"), ("off", "off")])
def test_the_setting_is_read(text: str, choice: str) -> None:
    settings = AgentSettings.from_env({"PACELINE_DEVICE_TIMERS": text})
    assert settings.device_timers == choice


def test_a_setting_that_is_none_is_named_and_replaced() -> None:
    settings = AgentSettings.from_env({"PACELINE_DEVICE_TIMERS": "perhaps"})
    assert settings.device_timers == "auto"
    assert any("PACELINE_DEVICE_TIMERS='perhaps'" in problem for problem in settings.problems)
