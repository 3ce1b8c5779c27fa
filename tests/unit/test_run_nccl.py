from __future__ import annotations

from pathlib import Path

from paceline.run.nccl import MAX_PATH_CHARS, choose_plugin

LIBRARY = Path("/opt/venv/lib/libnccl-profiler-paceline.so")


def test_a_job_gets_our_plugin_and_on_a_gpu_node_is_told_so() -> None:
    choice = choose_plugin({}, LIBRARY, has_gpu=True)
    assert choice.path == str(LIBRARY)
    assert str(LIBRARY) in choice.said


def test_without_a_gpu_nothing_is_said_of_it() -> None:
    choice = choose_plugin({}, LIBRARY, has_gpu=False)
    assert (choice.path, choice.said) == (str(LIBRARY), "")


def test_the_plugin_that_a_job_brings_stays_and_is_reported() -> None:
    choice = choose_plugin({"NCCL_PROFILER_PLUGIN": "inspector"}, LIBRARY, has_gpu=False)
    assert choice.path == ""
    assert "NCCL_PROFILER_PLUGIN=inspector is the job's own" in choice.said


def test_our_own_plugin_in_the_environment_is_nobody_elses() -> None:
    choice = choose_plugin({"NCCL_PROFILER_PLUGIN": str(LIBRARY)}, LIBRARY, has_gpu=False)
    assert choice.path == str(LIBRARY)


def test_it_can_be_turned_off() -> None:
    choice = choose_plugin({"PACELINE_NCCL_PLUGIN": "off"}, LIBRARY, has_gpu=True)
    assert choice.path == ""
    assert "PACELINE_NCCL_PLUGIN" in choice.said


def test_where_it_is_not_built_the_remedy_is_named() -> None:
    choice = choose_plugin({}, None, has_gpu=True)
    assert choice.path == ""
    assert "paceline doctor --build" in choice.said


def test_a_path_that_nccl_would_cut_is_not_given_to_it() -> None:
    choice = choose_plugin({}, Path("/" + "x" * MAX_PATH_CHARS), has_gpu=False)
    assert choice.path == ""
    assert "shorter path" in choice.said
