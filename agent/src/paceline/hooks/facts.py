"""What is worth knowing of where a process runs, beside its identity: for the ring's metadata.

Only the variables named here are read: an environment is full of secrets.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from pathlib import Path

MAX_CHARS = 128
VARIABLES = {
    "slurm_job_id": ("SLURM_JOB_ID",),
    "slurm_step_id": ("SLURM_STEP_ID",),
    "slurm_nodelist": ("SLURM_JOB_NODELIST", "SLURM_NODELIST"),
    "slurm_cluster": ("SLURM_CLUSTER_NAME",),
    "slurm_restart_count": ("SLURM_RESTART_COUNT",),
    "k8s_namespace": ("POD_NAMESPACE", "K8S_NAMESPACE"),
    "k8s_node": ("NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"),
    "k8s_completion_index": ("JOB_COMPLETION_INDEX",),
    "ray_job_id": ("RAY_JOB_ID",),
}
"""Facts and the variables that tell them, the first that is set."""
_LAUNCHERS = (
    ("TORCHELASTIC_RUN_ID", "torchrun"),
    ("OMPI_COMM_WORLD_RANK", "open_mpi"),
    ("MV2_COMM_WORLD_RANK", "mvapich"),
    ("PMI_RANK", "hydra"),
    ("SLURM_PROCID", "slurm"),
    ("RAY_JOB_ID", "ray"),
)
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def process_facts(env: Mapping[str, str]) -> dict[str, str]:
    """Return the facts of this process; never raises, and leaves out what is not known."""
    facts = {"hostname": _clean(socket.gethostname())}
    for name, variables in VARIABLES.items():
        value = next((env[key] for key in variables if env.get(key)), "")
        if value:
            facts[name] = _clean(value)
    launcher = next((said for key, said in _LAUNCHERS if key in env), "")
    if launcher:
        facts["launcher"] = launcher
    if "KUBERNETES_SERVICE_HOST" in env:
        facts["k8s_pod"] = _clean(env.get("POD_NAME") or socket.gethostname())
        facts.setdefault("k8s_namespace", _namespace())
    container = _container(env)
    if container:
        facts["container"] = container
    return {name: value for name, value in facts.items() if value}


def _namespace() -> str:
    try:
        with open(_NAMESPACE_FILE, encoding="utf-8", errors="replace") as file:
            return _clean(file.read(MAX_CHARS).strip())
    except OSError:
        return ""


def _container(env: Mapping[str, str]) -> str:
    """Return what kind of container this is, as far as it shows."""
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    if "APPTAINER_CONTAINER" in env or "SINGULARITY_CONTAINER" in env:
        return "apptainer"
    for mark, kind in (("/.dockerenv", "docker"), ("/run/.containerenv", "podman")):
        try:
            if Path(mark).exists():
                return kind
        except OSError:
            continue
    return ""


def _clean(value: str) -> str:
    return re.sub(r"[^\x20-\x7e]", "?", value)[:MAX_CHARS]
