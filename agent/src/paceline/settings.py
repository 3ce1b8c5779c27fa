"""What a process of a job knows about itself, read once from its environment.

Reading never raises, because the reader may be a training process: what cannot
be used is replaced by its default and named in ``problems``.
"""

from __future__ import annotations

import os
import re
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JOB_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
LEVELS = ("off", "steps", "collectives", "full")
"""Each brings what those before it bring. off: nothing is written, counters still run; steps: steps
and phases; collectives: every collective; full: times on the device, pauses, starvation."""
FULL = LEVELS[-1]
DEVICE_TIMERS = ("auto", "on", "off")
MAX_RUN_ID_CHARS = 64

PLUGIN_ENV = "NCCL_PROFILER_PLUGIN"
"""NCCL's own: the path of the profiler plugin that it is to load."""

REPLICA_CHECK_ENV = "PACELINE_REPLICA_CHECK_STEPS"

RUN_MARK = ".recorded-"
"""Begins the name of the file by which a rank tells `paceline run` that it made a ring: the ring
itself may be gone, read and removed, when the job has ended. The run's id ends it."""

_NO_ID = ("", "none")
"""What torchrun puts into TORCHELASTIC_RUN_ID when nobody gave it an id."""
# MPI's before Slurm's: what mpirun starts in an allocation inherits the variables of its daemon.
_RANK = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
)
_LOCAL_RANK = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
)
_WORLD_SIZE = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "SLURM_NTASKS",
)
_LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
)
_REPLICA = re.compile(r"(.+)-(?:master|worker|launcher)-[0-9]+\Z")
"""A pod of Kubeflow's PyTorchJob or MPIJob: job, role, index."""
_NODE = ("SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME")
_ATTEMPT = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    """The settings of one process; argument > environment > default."""

    job: str
    run_id: str
    attempt: int
    rank: int | None
    local_rank: int | None
    world_size: int | None
    node: str
    runtime_dir: Path
    level: str
    device_timers: str
    replica_check_steps: int
    """Every so many steps a rank adds up its parameters; 0: never."""
    disabled: bool
    url: str
    problems: tuple[str, ...]
    """Sentences about what could not be used; for the log, once."""

    @classmethod
    def from_env(cls, env: Mapping[str, str], *, job: str | None = None) -> AgentSettings:
        """Read ``env``; never raises.

        Args:
            env: usually ``os.environ``.
            job: a job name that takes precedence over ``PACELINE_JOB``.
        """
        problems: list[str] = []
        level = env.get("PACELINE_LEVEL", "") or "full"
        if level not in LEVELS:
            problems.append(f"PACELINE_LEVEL={level!r} is none of {', '.join(LEVELS)}; using full")
            level = "full"
        return cls(
            job=job_name(env, problems, job=job),
            run_id=_run_id(env, problems),
            attempt=_first_int(env, _ATTEMPT, problems) or 0,
            rank=_first_int(env, _RANK, problems),
            local_rank=_first_int(env, _LOCAL_RANK, problems),
            world_size=_first_int(env, _WORLD_SIZE, problems),
            node=node_name(env),
            runtime_dir=runtime_dir(env),
            level=level,
            device_timers=_device_timers(env, problems),
            replica_check_steps=_first_int(env, (REPLICA_CHECK_ENV,), problems) or 0,
            disabled=is_disabled(env),
            url=env.get("PACELINE_URL", ""),
            problems=tuple(problems),
        )


def _device_timers(env: Mapping[str, str], problems: list[str]) -> str:
    choice = env.get("PACELINE_DEVICE_TIMERS", "") or "auto"
    if choice in DEVICE_TIMERS:
        return choice
    problems.append(
        f"PACELINE_DEVICE_TIMERS={choice!r} is none of {', '.join(DEVICE_TIMERS)}; using auto"
    )
    return "auto"


def is_disabled(env: Mapping[str, str]) -> bool:
    """Whether ``PACELINE_DISABLE`` turns everything off."""
    return env.get("PACELINE_DISABLE", "").strip().lower() in ("1", "true", "yes", "on")


def runtime_dir(env: Mapping[str, str]) -> Path:
    """Return the directory of this node's rings: ``PACELINE_RUNTIME_DIR`` or the default."""
    given = env.get("PACELINE_RUNTIME_DIR", "")
    return Path(given) if given else default_runtime_dir()


def default_runtime_dir() -> Path:
    """Return ``/dev/shm/paceline-<uid>``, or the same below the temporary directory."""
    shared_memory = Path("/dev/shm")
    usable = shared_memory.is_dir() and os.access(shared_memory, os.W_OK)
    return (shared_memory if usable else Path(tempfile.gettempdir())) / f"paceline-{os.getuid()}"


def node_name(env: Mapping[str, str]) -> str:
    """Return the name of this node, at most 64 bytes: Slurm's, Kubernetes', or the host's."""
    name = next((env[key] for key in _NODE if env.get(key)), "") or socket.gethostname()
    return name.encode(errors="replace")[:64].decode(errors="ignore")


def job_name(env: Mapping[str, str], problems: list[str], *, job: str | None = None) -> str:
    """Return the job's name; what is no job name is made one, and that is a problem to log."""
    name = job or env.get("PACELINE_JOB") or env.get("SLURM_JOB_NAME")
    if not name:
        launcher_id = env.get("TORCHELASTIC_RUN_ID", "")
        name = _kubernetes_job(env) if launcher_id in _NO_ID else launcher_id
        name = name or "job"
    if JOB_PATTERN.match(name):
        return name
    made = re.sub(r"[^A-Za-z0-9._-]", "-", name)[:128] or "job"
    problems.append(
        f"job name {name[:140]!r} is not 1 to 128 of A-Z a-z 0-9 . _ -; using {made!r}; "
        "set PACELINE_JOB"
    )
    return made


def _kubernetes_job(env: Mapping[str, str]) -> str:
    """Return what the names of all pods of a job have in common; "" where that is not plain."""
    if "KUBERNETES_SERVICE_HOST" not in env:
        return ""
    pod = env.get("POD_NAME") or socket.gethostname()
    found = _REPLICA.match(pod)
    if found is None and env.get("JOB_COMPLETION_INDEX"):
        found = re.match(
            rf"(.+)-{re.escape(env['JOB_COMPLETION_INDEX'])}(?:-[a-z0-9]{{5}})?\Z", pod
        )
    return found[1] if found else ""


def _run_id(env: Mapping[str, str], problems: list[str]) -> str:
    """Return what all ranks of one launch share and no other launch has."""
    for name in ("PACELINE_RUN_ID", "TORCHELASTIC_RUN_ID"):
        value = env.get(name, "")
        if value not in _NO_ID:
            return clean_run_id(value)
    if env.get("SLURM_JOB_ID"):
        return clean_run_id(f"slurm-{env['SLURM_JOB_ID']}.{env.get('SLURM_STEP_ID', '0')}")
    address = f"{env.get('MASTER_ADDR', 'local')}-{env.get('MASTER_PORT', '0')}"
    world_size = _first_int(env, _WORLD_SIZE, []) or 1
    several_nodes = (_first_int(env, _LOCAL_WORLD_SIZE, []) or 0) < world_size > 1
    if several_nodes and (env.get("GROUP_RANK") or "KUBERNETES_SERVICE_HOST" in env):
        problems.append(
            "no run id: two launches of this job cannot be told apart; give torchrun "
            "--rdzv-id, start the job with `paceline run`, or set PACELINE_RUN_ID"
        )
        return clean_run_id(address)
    # On one node all ranks have one parent, and a later launch has another.
    return clean_run_id(f"{address}-{os.getppid()}")


def clean_run_id(text: str) -> str:
    """Return ``text`` as an id that can be a part of a file's name, at most 64 characters."""
    return re.sub(r"[^A-Za-z0-9._:@+=,~-]", "-", text)[:MAX_RUN_ID_CHARS]


def _first_int(env: Mapping[str, str], names: tuple[str, ...], problems: list[str]) -> int | None:
    for name in names:
        text = env.get(name)
        if text is None:
            continue
        try:
            value = int(text)
        except ValueError:
            value = -1
        if 0 <= value < 1 << 31:
            return value
        problems.append(f"{name}={text!r} is no whole number of at least 0; ignored")
    return None
