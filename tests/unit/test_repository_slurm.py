"""The scripts of deploy/slurm, run with stand-ins for Slurm's and systemd's commands."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
from pathlib import Path

import pytest

COMMANDS = ("scontrol", "squeue", "srun", "systemctl", "logger")
_STAND_IN = """#!/bin/bash
printf '%s\\n' "$(basename "$0") $*" >> "$CALLS"
answer="ANSWER_$(basename "$0")"
status="STATUS_$(basename "$0")"
[ -z "${!answer:-}" ] || printf '%s\\n' "${!answer}"
exit "${!status:-0}"
"""


class Commands:
    """Stand-ins that write down how they are called; ``answers`` and ``statuses`` are theirs."""

    def __init__(self, directory: Path, repository: Path) -> None:
        self.scripts = repository / "deploy/slurm"
        self.calls = directory / "calls"
        self.binaries = directory / "bin"
        self.binaries.mkdir()
        for name in COMMANDS:
            path = self.binaries / name
            path.write_text(_STAND_IN)
            path.chmod(0o755)

    def run(self, script: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        if shutil.which("bash") is None:
            pytest.skip("bash is missing")
        self.calls.write_text("")
        path = f"{self.binaries}:{os.defpath}"
        return subprocess.run(
            ["bash", self.scripts / script, *arguments],
            env={"PATH": path, "CALLS": str(self.calls), **env},
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip

    def called(self, name: str) -> list[str]:
        lines = self.calls.read_text().splitlines()
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


@pytest.fixture
def slurm(tmp_path: Path, repository: Path) -> Commands:
    return Commands(tmp_path, repository)


@pytest.mark.parametrize("script", ["prolog.sh", "epilog.sh"])
@pytest.mark.parametrize("user", ["", "alice", "../../etc", "x; reboot"])
def test_prolog_and_epilog_never_fail_since_that_would_drain_the_node(
    slurm: Commands, script: str, user: str
) -> None:
    done = slurm.run(
        script, SLURM_JOB_USER=user, SLURM_JOB_ID="7",
        STATUS_systemctl="1", STATUS_squeue="1", SLURMD_NODENAME="n1",
    )  # fmt: skip
    assert done.returncode == 0
    assert not slurm.called("systemctl") or user == "alice"


def test_epilog_stops_the_sidecar_with_the_users_last_job_on_the_node(slurm: Commands) -> None:
    of_alice = {"SLURM_JOB_USER": "alice", "SLURM_JOB_ID": "7", "SLURMD_NODENAME": "gpu-3"}
    slurm.run("epilog.sh", **of_alice, ANSWER_squeue="7")
    assert slurm.called("systemctl") == ["stop --no-block paceline-sidecar@alice.service"]
    assert "--nodelist gpu-3" in slurm.called("squeue")[0]
    slurm.run("epilog.sh", **of_alice, ANSWER_squeue="7\n8")
    assert not slurm.called("systemctl")


def test_drained_node_is_named_with_its_incident_and_jobs_are_requeued_when_asked(
    slurm: Commands,
) -> None:
    assert slurm.run("drain.sh", "gpu-3", "12").returncode == 0
    drain = "update nodename=gpu-3 state=drain reason=paceline-incident-12"
    assert slurm.called("scontrol") == [drain]
    assert slurm.run("drain.sh", "gpu-3", "12", "--requeue", ANSWER_squeue="40\n41").returncode == 0
    assert slurm.called("scontrol") == [drain, "requeue 40", "requeue 41"]
    said = slurm.run("drain.sh", "gpu-3", "12", "--dry-run").stdout
    assert said == f"scontrol {drain}\n"
    assert not slurm.called("scontrol")


@pytest.mark.parametrize("node", ["ALL", "gpu[1-99]", "a,b", "-x", "a b", "$(reboot)", ""])
def test_what_is_not_the_name_of_one_node_is_not_drained(slurm: Commands, node: str) -> None:
    done = slurm.run("drain.sh", node, "12")
    assert done.returncode == 2
    assert not slurm.called("scontrol")


def test_batch_script_runs_the_job_with_the_token_in_no_command_line(
    slurm: Commands, tmp_path: Path
) -> None:
    token = tmp_path / ".config/paceline/token"
    token.parent.mkdir(parents=True)
    token.write_text("plt_secret\n")
    done = slurm.run(
        "train.sbatch", "--steps", "9", HOME=str(tmp_path), SLURM_JOB_NODELIST="gpu-[3-4]",
        SLURM_NNODES="2", SLURM_JOB_ID="77", SLURM_JOB_NAME="llama", SLURM_JOB_ACCOUNT="nlp",
        ANSWER_scontrol="gpu-3\ngpu-4",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (launched,) = slurm.called("srun")
    assert "paceline run --job nlp.llama -- torchrun" in launched
    assert "--rdzv-endpoint gpu-3:29500 --rdzv-id 77 train.py --steps 9" in launched
    assert "plt_secret" not in slurm.calls.read_text()


@pytest.mark.parametrize("name", ["paceline-collector", "paceline-sidecar@"])
def test_units_keep_secrets_in_a_file_and_give_no_privilege(repository: Path, name: str) -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(repository / f"deploy/systemd/{name}.service")
    service = unit["Service"]
    assert service["NoNewPrivileges"] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["ProtectSystem"] == "strict"
    assert service["EnvironmentFile"].startswith("/etc/paceline/")
    assert service["User"] in ("paceline", "%i")
    assert "TOKEN" not in service["ExecStart"]
