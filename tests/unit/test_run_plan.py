from __future__ import annotations

from pathlib import Path

import pytest

from paceline.errors import ConfigError
from paceline.run.plan import Destination, Plan, make_plan, script_name

TRAIN = ["torchrun", "--nproc-per-node", "4", "train.py", "--nnodes", "9"]


def plan(
    command: list[str] | None = None,
    *,
    job: str | None = None,
    can_serve: bool = True,
    **env: str,
) -> Plan:
    return make_plan(command or TRAIN, env, job=job, report=None, can_serve=can_serve)


def test_on_a_single_node_without_a_collector_one_is_brought_up() -> None:
    assert plan().destination is Destination.EMBEDDED
    assert plan(can_serve=False).destination is Destination.EVENT_LOG


def test_a_collector_that_is_named_is_used() -> None:
    named = plan(PACELINE_URL="http://collector:8750")
    assert (named.destination, named.url) == (Destination.URL, "http://collector:8750")


@pytest.mark.parametrize(
    "env",
    [
        {"SLURM_NNODES": "2"},
        {"SLURM_NTASKS": "8"},
        {"PET_NNODES": "1:4"},
        {"WORLD_SIZE": "8"},
        {"OMPI_COMM_WORLD_SIZE": "2"},
        {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "MASTER_ADDR": "job-0"},
    ],
)
def test_a_part_of_a_larger_job_brings_up_no_collector_and_makes_no_run_id(
    env: dict[str, str],
) -> None:
    part = plan(**env)
    assert part.destination is Destination.EVENT_LOG
    assert part.run_id == ""
    assert not part.owns_runtime_dir


@pytest.mark.parametrize("nodes", [["--nnodes", "2"], ["--nnodes=1:3"]])
def test_torchrun_over_several_nodes_is_a_larger_job(nodes: list[str]) -> None:
    command = ["torchrun", *nodes, "train.py"]
    assert plan(command).destination is Destination.EVENT_LOG


def test_arguments_of_the_script_are_not_torchruns() -> None:
    assert plan(TRAIN).destination is Destination.EMBEDDED


def test_every_launch_has_its_own_directory_and_id() -> None:
    first, second = plan(), plan()
    assert first.run_id != second.run_id
    assert first.runtime_dir != second.runtime_dir
    assert first.owns_runtime_dir


def test_a_directory_that_is_given_is_used_as_it_is_and_never_removed(tmp_path: Path) -> None:
    given = plan(PACELINE_RUNTIME_DIR=str(tmp_path))
    assert given.runtime_dir == tmp_path
    assert not given.owns_runtime_dir


def test_the_name_of_a_job_is_argument_then_environment_then_script() -> None:
    assert plan(job="a", PACELINE_JOB="b").job == "a"
    assert plan(PACELINE_JOB="b", SLURM_JOB_NAME="c").job == "b"
    assert plan(SLURM_JOB_NAME="c").job == "c"
    assert plan().job == "train"
    assert script_name(["python", "-m", "module"]) == "job"


def test_a_bad_name_is_refused_as_argument_and_mended_from_the_environment() -> None:
    with pytest.raises(ConfigError, match="my job"):
        plan(job="my job")
    assert plan(PACELINE_JOB="my job").job == "my-job"
