from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from paceline.settings import (
    JOB_PATTERN,
    LEVELS,
    AgentSettings,
    clean_run_id,
    default_runtime_dir,
)


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


def test_mpi_within_slurm_tells_the_rank_because_slurm_tells_that_of_mpis_daemon() -> None:
    daemon = {"SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}
    for rank, local_rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
        ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ):
        settings = AgentSettings.from_env({**daemon, rank: "13", local_rank: "5", size: "16"})
        assert (settings.rank, settings.local_rank, settings.world_size) == (13, 5, 16)


def test_a_local_rank_that_nothing_tells_is_unknown() -> None:
    assert AgentSettings.from_env({"RANK": "3", "WORLD_SIZE": "4"}).local_rank is None


@pytest.mark.parametrize(
    ("pod", "extra", "job"),
    [
        ("bert-master-0", {}, "bert"),
        ("bert-worker-11", {}, "bert"),
        ("bert-launcher-0", {}, "bert"),
        ("sweep-3", {"JOB_COMPLETION_INDEX": "3"}, "sweep"),
        ("sweep-3-x7k2p", {"JOB_COMPLETION_INDEX": "3"}, "sweep"),
        ("sweep-13", {"JOB_COMPLETION_INDEX": "3"}, "job"),
        ("web-7d4b9c-x7k2p", {}, "job"),
    ],
)
def test_the_pods_of_a_kubernetes_job_agree_on_its_name(
    pod: str, extra: dict[str, str], job: str
) -> None:
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "POD_NAME": pod, **extra}
    assert AgentSettings.from_env(env).job == job


def test_pods_of_one_job_have_one_run_id_and_are_told_what_it_cannot_tell() -> None:
    env = {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "MASTER_ADDR": "bert-master-0",
        "MASTER_PORT": "23456",
        "WORLD_SIZE": "4",
        "RANK": "2",
    }
    settings = AgentSettings.from_env(env)
    assert settings.run_id == "bert-master-0-23456"
    assert "PACELINE_RUN_ID" in settings.problems[0]


@pytest.mark.parametrize("name", ["SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"])
def test_a_node_is_called_what_the_scheduler_calls_it(name: str) -> None:
    assert AgentSettings.from_env({name: "node-17"}).node == "node-17"


@pytest.mark.parametrize("value", ["a/b", "../../up", "new\nline", "gl*b[1]", "b\udcffd", "ünit"])
def test_a_run_id_is_always_a_part_of_a_file_name(value: str) -> None:
    for name in ("PACELINE_RUN_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR"):
        run_id = AgentSettings.from_env({name: value}).run_id
        assert re.fullmatch(r"[A-Za-z0-9._:@+=,~-]{1,64}", run_id)
        assert clean_run_id(run_id) == run_id


def test_whatever_the_environment_holds_it_is_read() -> None:
    names = (
        "PACELINE_JOB", "PACELINE_LEVEL", "PACELINE_RUN_ID", "PACELINE_RUNTIME_DIR",
        "PACELINE_DISABLE", "PACELINE_URL", "RANK", "LOCAL_RANK", "WORLD_SIZE", "GROUP_RANK",
        "LOCAL_WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_NAME", "SLURM_NTASKS",
        "NODE_NAME", "POD_NAME", "JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST",
    )  # fmt: skip
    for value in ("", " ", "-1", "1e9", "9" * 5000, "x" * 5000, "\udcff\n", "((", "None", "ß"):
        settings = AgentSettings.from_env(dict.fromkeys(names, value))
        assert JOB_PATTERN.match(settings.job)
        assert len(settings.node.encode()) <= 64
        assert settings.attempt >= 0
        assert settings.level in LEVELS


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
