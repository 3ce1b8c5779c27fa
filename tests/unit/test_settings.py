from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.settings import AgentSettings, default_runtime_dir


def test_torchrun_tells_who_this_rank_is() -> None:
    settings = AgentSettings.from_env(
        {
            "RANK": "5",
            "LOCAL_RANK": "1",
            "WORLD_SIZE": "8",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "TORCHELASTIC_RUN_ID": "abc",
        }
    )
    assert (settings.rank, settings.local_rank, settings.world_size) == (5, 1, 8)
    assert (settings.attempt, settings.run_id, settings.job) == (2, "abc", "abc")
    assert settings.problems == ()


def test_slurm_and_mpi_are_understood_without_torchrun() -> None:
    slurm = AgentSettings.from_env(
        {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "77", "SLURM_JOB_NAME": "gpt"}
    )
    assert (slurm.rank, slurm.world_size, slurm.job, slurm.run_id) == (3, 4, "gpt", "slurm-77.0")
    mpi = AgentSettings.from_env({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"})
    assert (mpi.rank, mpi.world_size) == (1, 2)


def test_an_argument_takes_precedence_over_the_environment() -> None:
    env = {"PACELINE_JOB": "from-env", "SLURM_JOB_NAME": "from-slurm"}
    assert AgentSettings.from_env(env).job == "from-env"
    assert AgentSettings.from_env(env, job="from-code").job == "from-code"


def test_the_id_of_paceline_run_takes_precedence_over_the_launchers() -> None:
    env = {"PACELINE_RUN_ID": "ours", "TORCHELASTIC_RUN_ID": "theirs"}
    assert AgentSettings.from_env(env).run_id == "ours"


def test_an_id_that_torchrun_calls_none_is_no_id() -> None:
    env = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    run_id = AgentSettings.from_env(env).run_id
    assert run_id.startswith("localhost-29500-")
    assert AgentSettings.from_env(env).job == "job"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "-1"),
        ("RANK", "two"),
        ("PACELINE_LEVEL", "verbose"),
        ("PACELINE_JOB", "my job/1"),
        ("PACELINE_JOB", "x" * 129),
    ],
)
def test_what_cannot_be_used_is_a_problem_and_never_an_exception(name: str, value: str) -> None:
    settings = AgentSettings.from_env({name: value})
    assert len(settings.problems) == 1
    assert value[:100] in settings.problems[0]


def test_a_bad_job_name_becomes_a_usable_one() -> None:
    assert AgentSettings.from_env({"PACELINE_JOB": "my job/1"}).job == "my-job-1"


def test_rings_lie_where_the_environment_says() -> None:
    assert AgentSettings.from_env({"PACELINE_RUNTIME_DIR": "/x"}).runtime_dir == Path("/x")
    assert AgentSettings.from_env({}).runtime_dir == default_runtime_dir()


@pytest.mark.parametrize(("value", "off"), [("1", True), ("true", True), ("0", False), ("", False)])
def test_paceline_disable_turns_everything_off(value: str, off: bool) -> None:
    assert AgentSettings.from_env({"PACELINE_DISABLE": value}).disabled is off


def test_importing_paceline_brings_the_standard_library_only_and_little_of_it() -> None:
    code = (
        "import sys; before = set(sys.modules); import paceline; "
        "print(sorted({m.partition('.')[0] for m in set(sys.modules) - before}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    modules = set(eval(answer.stdout))
    assert modules - {"paceline"} <= set(sys.stdlib_module_names)
    assert not modules & {"asyncio", "json", "logging", "socket", "subprocess"}
