"""The next command for each cause, for Slurm and Kubernetes (docs/math/causes.md).

What follows ``#`` is for the reader: a command can be pasted with it.
"""

from __future__ import annotations

import re

_NODE = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\Z"
"""What a node can be called. Names come from agents, and commands are pasted into shells."""
_EVERY_NODE = frozenset({"all", "none", "default"})
"""``scontrol update nodename=ALL`` drains a cluster."""
_WHY = {
    "cooling": "check its cooling: fans, air flow, thermal paste; then give it back",
    "power": "check its power supply, cables and limit (nvidia-smi -q -d POWER); give it back",
    "throttle": "run nvidia-smi -q -d PERFORMANCE on it; then give it back",
    "clocks": "check its clocks: nvidia-smi -q -d CLOCK; nvidia-smi -rgc unlocks them",
    "drain_gpu": "run dcgmi diag -r 3 on it, replace the GPU if that fails",
    "reset": "then nvidia-smi --gpu-reset -i GPU on it, and dcgmi diag -r 3",
    "reseat": "reseat the GPU or its riser; then nvidia-smi -q shows the full link width",
    "compute": "if other jobs are slow there too",
    "unknown": "if other jobs are slow there too",
}
_ALONE = {
    "cooling": "nvidia-smi -q -d TEMPERATURE,PERFORMANCE,POWER",
    "power": "nvidia-smi -q -d POWER,PERFORMANCE",
    "throttle": "nvidia-smi -q -d PERFORMANCE,CLOCK",
    "clocks": "nvidia-smi -q -d CLOCK; nvidia-smi -rgc",
    "drain_gpu": "dcgmi diag -r 3",
    "reset": "nvidia-smi --gpu-reset -i GPU",
    "reseat": "nvidia-smi -q -d PERFORMANCE; lspci -vv | grep LnkSta",
}
_ON_HOST = {
    "gc": "gc.collect(); gc.freeze()  # once after setting up on every rank, or gc.disable() and "
    "collect on all ranks in the same step",
    "no_core": "top -H -b -n 1 | head -30  # on {where}: what takes the cores; pin ranks with "
    "--cpu-bind (Slurm) or a static CPU manager (Kubernetes)",
    "no_lock": "py-spy dump --pid PID_OF_RANK_{rank} --gil  # which thread holds the "
    "interpreter's lock; move it to a process of its own",
    "cpu_limit": "kubectl set resources ... --limits=cpu=N  # more CPUs for rank {rank}, or with "
    "Slurm --cpus-per-task=N",
    "steal": "{drain}  # the hypervisor gives its CPUs to others; ask for a machine of its own",
    "cpu_clock": "cpupower frequency-set -g performance  # on {where}; then check its cooling",
    "input": "iostat -x 1 3; top -b -n 1 | head -20  # on {where}; then more data loader workers, "
    "prefetching, or local copies of the data",
    "host": "py-spy dump --pid PID_OF_RANK_{rank}  # twice, in a slow step; then top -b -n 1",
}


def names_a_node(name: str) -> bool:
    """Whether a command may be made of the name of a node: it names one and is nothing more."""
    return re.match(_NODE, name) is not None and name.lower() not in _EVERY_NODE


def drain(nodes: list[str], reason: str) -> str:
    """Return the command that takes nodes out of service once their jobs end."""
    listed = ",".join(nodes)
    kubernetes = "; ".join(f"kubectl cordon {node}" for node in nodes[:2])
    return f"scontrol update nodename={listed} state=drain reason={reason}  # or {kubernetes}"


def action_for(
    remedy: str, cause: str, *, rank: int, node: str, alone: bool, whole_node: bool = False
) -> str:
    """Return the next command.

    Args:
        remedy: what fits, from the explanation.
        cause: of the finding.
        rank: the slow one, or one of a slow node.
        node: its node, empty where unknown.
        alone: the job runs on one node, which cannot be drained from under it.
        whole_node: all ranks of the node are slow.
    """
    node = node if names_a_node(node) else ""
    where = node or f"the node of rank {rank}"
    who = "" if whole_node else f"-rank-{rank}"
    out_of_service = drain([node], f"paceline-{cause.replace('_', '-')}{who}") if node else ""
    if remedy == "steal" and (alone or not node):
        return f"top -b -n 1 | head -5  # on {where}: the share `st`; ask for a machine of its own"
    if remedy in _ON_HOST:
        plain = out_of_service.partition("  #")[0]
        return _ON_HOST[remedy].format(where=where, rank=rank, drain=plain)
    if alone or not node:
        command = _ALONE.get(remedy, "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE")
        return f"{command}  # for rank {rank}; then top -b -n 1"
    return f"{out_of_service}; {_WHY.get(remedy, _WHY['unknown'])}"
