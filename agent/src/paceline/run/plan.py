"""What ``paceline run`` is going to do, decided before anything is started."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from paceline.errors import ConfigError
from paceline.settings import JOB_PATTERN, clean_run_id, default_runtime_dir

SIDECAR_LOCK = "sidecar.lock"
LOGS = Path("paceline-logs")
_FLOCK = struct.Struct("hhqqi4x")


class Destination(Enum):
    """Where the records of a job go."""

    URL = "a collector that runs elsewhere"
    EMBEDDED = "a collector that runs as long as the job"
    EVENT_LOG = "event logs in the current directory"
    NODE_SIDECAR = "the sidecar that runs on this node already"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One launch."""

    command: tuple[str, ...]
    job: str
    run_id: str
    """Empty: the launcher of the job has an id that all nodes share."""
    runtime_dir: Path
    owns_runtime_dir: bool
    """Whether the directory is this launch's alone and can be removed after it."""
    destination: Destination
    url: str
    events_dir: Path
    report: Path | None


def make_plan(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    job: str | None,
    report: Path | None,
    can_serve: bool,
) -> Plan:
    """Decide how ``command`` is run.

    Args:
        command: the job's command line.
        env: the environment of ``paceline run``.
        job: the value of ``--job``.
        report: the value of ``--report``.
        can_serve: whether the collector is installed here.

    Raises:
        ConfigError: ``job`` is no job name.
    """
    name = job or env.get("PACELINE_JOB") or env.get("SLURM_JOB_NAME") or script_name(command)
    if not JOB_PATTERN.match(name):
        if job is not None:
            raise ConfigError(f"--job {job!r} is no job name: give 1 to 128 of A-Z a-z 0-9 . _ -")
        name = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:128] or "job"
    shared = is_part_of_a_larger_job(command, env)
    given_id = clean_run_id(env.get("PACELINE_RUN_ID", ""))
    run_id = given_id or ("" if shared else secrets.token_hex(8))
    url = env.get("PACELINE_URL", "")

    given_dir = env.get("PACELINE_RUNTIME_DIR", "")
    # Absolute: the job may change its directory.
    runtime_dir = Path(given_dir).absolute() if given_dir else None
    owned = False
    if runtime_dir is None:
        runtime_dir = default_runtime_dir()
        if not sidecar_runs(runtime_dir):
            owned = not shared and not given_id
            runtime_dir /= f"run-{run_id or shared_id(env)}"
    if sidecar_runs(runtime_dir):
        destination = Destination.NODE_SIDECAR
    elif url:
        destination = Destination.URL
    elif can_serve and not shared:
        destination = Destination.EMBEDDED
    else:
        destination = Destination.EVENT_LOG
    return Plan(
        command=tuple(command),
        job=name,
        run_id=run_id,
        runtime_dir=runtime_dir,
        owns_runtime_dir=owned,
        destination=destination,
        url=url,
        events_dir=LOGS / f"{name}-{run_id or shared_id(env)}",
        report=report,
    )


def script_name(command: Sequence[str]) -> str:
    """Return a name for a job from its script, ``job`` where it has none."""
    for word in command:
        if word.endswith(".py"):
            return Path(word).stem
    return Path(command[-1]).stem if len(command) == 1 else "job"


def is_part_of_a_larger_job(command: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether other nodes, or other ``paceline run`` on this one, run parts of the same job."""
    if max(_count(env, "SLURM_NTASKS"), _count(env, "SLURM_NNODES")) > 1:
        return True
    if max(_count(env, "OMPI_COMM_WORLD_SIZE"), _count(env, "PMI_SIZE")) > 1:
        return True
    if _count(env, "WORLD_SIZE") > 1 or _largest(env.get("PET_NNODES", "")) > 1:
        return True
    if "KUBERNETES_SERVICE_HOST" in env and (
        "PET_RDZV_ENDPOINT" in env or "MASTER_ADDR" in env or "JOB_COMPLETION_INDEX" in env
    ):
        return True
    return _largest(_option(command, "--nnodes")) > 1


def shared_id(env: Mapping[str, str]) -> str:
    """Return what all parts of one job on this node agree upon."""
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "JOB_COMPLETION_INDEX"):
        if env.get(name):
            return re.sub(r"[^A-Za-z0-9._-]", "-", env[name])[:64]
    return f"{os.getppid()}"


def sidecar_runs(runtime_dir: Path) -> bool:
    """Whether a sidecar holds the lock of ``runtime_dir``."""
    try:
        with open(runtime_dir / SIDECAR_LOCK, "rb") as file:
            query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            answer = fcntl.fcntl(file.fileno(), fcntl.F_GETLK, query)
    except OSError:
        return False
    return bool(_FLOCK.unpack(answer)[0] != fcntl.F_UNLCK)


def _option(command: Sequence[str], name: str) -> str:
    for index, word in enumerate(command):
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
        if word == name and index + 1 < len(command):
            return command[index + 1]
        if word.endswith(".py"):
            break  # what follows belongs to the script
    return ""


def _largest(nodes: str) -> int:
    """Return the most nodes that ``--nnodes`` (``2`` or ``1:4``) allows, 0 if it says nothing."""
    last = nodes.rpartition(":")[2]
    return int(last) if last.isdecimal() else 0


def _count(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    return int(text) if text.isdecimal() else 0
