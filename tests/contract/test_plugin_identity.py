"""Without hooks the plugin reads the environment: every value is what paceline.settings makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from paceline import clock
from paceline.settings import AgentSettings
from tests.conftest import ROOT
from tests.contract.nccl_driver import Nccl

NAMES = (
    "PACELINE_JOB", "PACELINE_RUN_ID", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT",
    "SLURM_JOB_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_LOCALID",
    "SLURM_NTASKS", "SLURM_RESTART_COUNT", "SLURMD_NODENAME", "NODE_NAME", "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_SIZE",
    "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE", "PMIX_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_NTASKS_PER_NODE", "MPI_LOCALNRANKS", "GROUP_RANK",
    "KUBERNETES_SERVICE_HOST", "POD_NAME", "JOB_COMPLETION_INDEX", "K8S_NODE_NAME", "MY_NODE_NAME",
    "MPI_LOCALRANKID", "MASTER_ADDR", "MASTER_PORT", "RANK", "LOCAL_RANK", "WORLD_SIZE",
    "LOCAL_WORLD_SIZE", "PACELINE_LEVEL", "PACELINE_DISABLE",
)  # fmt: skip
KUBERNETES = {"RANK": "1", "WORLD_SIZE": "4", "KUBERNETES_SERVICE_HOST": ""}
TORCHRUN = {"RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "torchrun": {
        **TORCHRUN, "TORCHELASTIC_RUN_ID": "run-9", "TORCHELASTIC_RESTART_COUNT": "2",
        "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500",
    },
    "torchrun without an id": {**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "1"},
    "paceline run": {**TORCHRUN, "PACELINE_JOB": "llama", "PACELINE_RUN_ID": "x" * 80},
    "slurm": {
        "SLURM_PROCID": "7", "SLURM_LOCALID": "3", "SLURM_NTASKS": "32", "SLURM_JOB_ID": "4711",
        "SLURM_STEP_ID": "2", "SLURM_JOB_NAME": "my job / 1", "SLURMD_NODENAME": "n017",
        "SLURM_RESTART_COUNT": "1",
    },
    "slurm without a step": {**TORCHRUN, "SLURM_JOB_ID": "4711"},
    "slurm with an empty step": {**TORCHRUN, "SLURM_JOB_ID": "4711", "SLURM_STEP_ID": ""},
    "open mpi": {
        "OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4"
    },
    "mpich": {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"},
    "mvapich in slurm": {
        "MV2_COMM_WORLD_RANK": "2", "MV2_COMM_WORLD_LOCAL_RANK": "1", "MV2_COMM_WORLD_SIZE": "4",
        "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "5;rm", "SLURM_JOB_NAME": "x",
    },
    "pod of a pytorch job": {
        **KUBERNETES, "POD_NAME": "llama-70b-worker-12", "MY_NODE_NAME": "n",
        "LOCAL_WORLD_SIZE": "8",
    },
    "pod of an indexed job": {
        **KUBERNETES, "POD_NAME": "a-7-x-7-k2d9z", "JOB_COMPLETION_INDEX": "7"
    },
    "pod of an indexed job without letters": {
        **KUBERNETES, "POD_NAME": "a-7", "JOB_COMPLETION_INDEX": "7", "K8S_NODE_NAME": "m",
        "NODE_NAME": "",
    },
    "pod whose name tells nothing": {**KUBERNETES, "POD_NAME": "-worker-1"},
    "pod without an index": {**KUBERNETES, "POD_NAME": "a-worker-", "JOB_COMPLETION_INDEX": "3"},
    "several nodes": {**TORCHRUN, "GROUP_RANK": "1", "LOCAL_WORLD_SIZE": "8", "MASTER_ADDR": "a/b"},
    "one node": {**TORCHRUN, "GROUP_RANK": "0", "LOCAL_WORLD_SIZE": "16"},
    "kubernetes": {**TORCHRUN, "NODE_NAME": "gke-pool-1", "PACELINE_JOB": "a.b_c-d"},
    "numbers that are none": {
        "RANK": "one", "SLURM_PROCID": "-3", "OMPI_COMM_WORLD_RANK": "99999999999", "PMI_RANK": "6",
        "WORLD_SIZE": "", "SLURM_NTASKS": "0x10", "PMI_SIZE": "8", "LOCAL_RANK": "1.5",
        "TORCHELASTIC_RESTART_COUNT": "1e3",
    },
    "numbers as python takes them": {
        "RANK": " +1_0 ", "WORLD_SIZE": "\t064\n", "LOCAL_RANK": "-0",
        "SLURM_RESTART_COUNT": "1__0", "TORCHELASTIC_RESTART_COUNT": "_1",
    },
    "job of other letters": {**TORCHRUN, "PACELINE_JOB": "größe 7/β\n"},
    "job that is too long": {**TORCHRUN, "SLURM_JOB_NAME": "j" * 300},
    "job called none": {**TORCHRUN, "PACELINE_JOB": "none", "TORCHELASTIC_RUN_ID": "abc"},
    "empty names": {**TORCHRUN, "PACELINE_JOB": "", "SLURM_JOB_NAME": "", "PACELINE_RUN_ID": "",
                    "TORCHELASTIC_RUN_ID": "t", "SLURMD_NODENAME": "", "NODE_NAME": "n"},
    "node cut within a letter": {**TORCHRUN, "NODE_NAME": "x" * 63 + "é"},
    "nothing at all but a rank": {"RANK": "0", "WORLD_SIZE": "2"},
    "level that is none": {**TORCHRUN, "PACELINE_LEVEL": "everything", "PACELINE_DISABLE": "2"},
}  # fmt: skip


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PACELINE_RUNTIME_DIR", str(tmp_path / "rings"))
    return monkeypatch


def set_all(environment: pytest.MonkeyPatch, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        environment.setenv(name, value)


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_header_says_what_the_settings_say(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch, case: str
) -> None:
    set_all(environment, ENVIRONMENTS[case])
    nccl = Nccl(plugin_library, tmp_path)
    nccl.coll(nccl.comm())
    found, expected = nccl.identity(), AgentSettings.from_env(os.environ)
    assert (found.job, found.run_id, found.node) == (expected.job, expected.run_id, expected.node)
    assert (found.attempt, found.local_rank) == (expected.attempt, expected.local_rank or 0)
    assert (found.rank, found.world_size) == (expected.rank, expected.world_size)
    assert (found.boot_id, found.time_namespace) == (clock.boot_id(), clock.time_namespace())
    assert (found.pid, found.producer) == (os.getpid(), "nccl")
    assert any(found.incarnation)


def test_rank_that_nobody_tells_is_that_of_the_first_communicator(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    nccl = Nccl(plugin_library, tmp_path)
    nccl.comm(rank=3, ranks=8)
    nccl.coll(nccl.comm(rank=0, ranks=2))
    identity = nccl.identity()
    assert (identity.rank, identity.world_size) == (3, 8)


def test_hooks_that_tell_who_the_process_is_come_before_the_environment(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    set_all(environment, {**TORCHRUN, "PACELINE_JOB": "other"})
    nccl = Nccl(plugin_library, tmp_path)
    rings = str(tmp_path / "rings").encode()
    context = nccl.comm()
    assert nccl.library.paceline_identify(b"job", b"run", 3, 6, 2, 9, b"node", rings) == 0
    nccl.coll(context)
    found = nccl.identity()
    assert (found.job, found.run_id, found.attempt, found.node) == ("job", "run", 3, "node")
    assert (found.rank, found.local_rank, found.world_size) == (6, 2, 9)


def test_process_that_becomes_another_rank_gets_another_ring(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    nccl = Nccl(plugin_library, tmp_path)
    rings = str(tmp_path / "rings").encode()
    context = nccl.comm()
    for rank in (1, 1, 2):
        nccl.library.paceline_identify(b"job", b"run", 0, rank, 0, 4, b"node", rings)
        nccl.runs(context, nccl.coll(context))
    first, second = nccl.readers()
    assert (first.identity.rank, second.identity.rank) == (1, 2)
    assert first.closed_by_writer
    assert not second.closed_by_writer
    assert [record.seq for record in first.poll().records] == [0, 1]
    assert [record.seq for record in second.poll().records] == [2]
    assert second.meta()[0][-1]["name"] == "world"  # the second explains its groups again
    first.close()
    second.close()


@pytest.mark.parametrize("word", ["1", " TRUE ", "yes", "On"])
def test_disabled_plugin_subscribes_to_nothing(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch, word: str
) -> None:
    environment.setenv("PACELINE_DISABLE", word)
    nccl = Nccl(plugin_library, tmp_path)
    context = nccl.comm()
    assert context is None
    assert nccl.mask.value == 0
    assert nccl.coll(context) is None
    assert not nccl.rings.exists()


def test_default_directory_is_that_of_the_settings(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    environment.delenv("PACELINE_RUNTIME_DIR")
    environment.setenv("PACELINE_JOB", "of-this-test")
    nccl = Nccl(plugin_library, tmp_path)
    nccl.coll(nccl.comm())
    nccl.rings = AgentSettings.from_env(os.environ).runtime_dir
    found = 0
    for reader in nccl.readers():
        if reader.identity.job == "of-this-test":
            reader.path.unlink()
            found += 1
        reader.close()
    assert found == 1


IN_ITS_PLACE = {
    "is missing": ("true", 1),
    "is missing, and one in it is named": ("umask 002; export PACELINE_RUNTIME_DIR=$D/run", 1),
    "is not private, and one in it is named": (
        "mkdir -m 777 $D; export PACELINE_RUNTIME_DIR=$D/run",
        0,
    ),
    "is private": ("mkdir -m 700 $D", 1),
    "can be written by others": ("mkdir -m 777 $D", 0),
    "is a link": ("mkdir -m 700 $D.to && ln -s $D.to $D", 0),
    "is of another user": ("mkdir -m 700 $D && chown 1 $D", 0),
}


@pytest.mark.parametrize("how", IN_ITS_PLACE)
def test_default_directory_is_used_where_it_is_this_users_alone(
    plugin_library: Path, tmp_path: Path, environment: pytest.MonkeyPatch, how: str
) -> None:
    environment.delenv("PACELINE_RUNTIME_DIR")
    environment.setenv("D", f"/dev/shm/paceline-{os.getuid()}")
    mounted = ["unshare", "--mount", "sh", "-ec"]
    alone = "mount -t tmpfs tmpfs /dev/shm"
    if (
        os.getuid() != 0
        or not shutil.which("unshare")
        or subprocess.run([*mounted, alone], capture_output=True).returncode != 0
    ):
        pytest.skip("needs root that may mount a tmpfs: run as root with CAP_SYS_ADMIN")
    make, rings = IN_ITS_PLACE[how]
    play = (
        "import os, sys; from pathlib import Path; from tests.contract.nccl_driver import Nccl;"
        "nccl = Nccl(Path(sys.argv[1]), Path(sys.argv[2])); nccl.coll(nccl.comm());"
        "print(len(list(Path(os.environ['D']).rglob('*.ring'))),"
        "nccl.library.paceline_errors(), nccl.counter('lost_records'))"
    )
    done = subprocess.run(
        [*mounted, f'{alone}; {make}; exec "$@"', "sh", sys.executable, "-c", play,
         str(plugin_library), str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.stdout.split() == [str(rings), str(1 - rings), str(1 - rings)], done.stderr
