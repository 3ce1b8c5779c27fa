"""The commands that take a node out of service, for whoever reads the message; and their undoing.

A name of a node comes from its agent. It goes into a command only if a node can be called so:
``scontrol update nodename=ALL`` would drain a cluster, ``a[1-99]`` a rack.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paceline_service.analysis.causes.actions import names_a_node
from paceline_service.notify.message import Proposal

TAINT = "paceline.dev/straggler"
MAX_NODES = 4
KINDS = frozenset({"straggler", "hang", "communication"})
"""Kinds of incidents for which a node may be at fault (``incidents/offences.py``)."""
_NOT_THE_NODE = frozenset({"input", "gc"})
"""What another node would not change: the data, and the program itself."""
_KUBERNETES = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")


def is_node_name(name: str) -> bool:
    """Whether a command may be made with ``name``: it names one node, and cannot be more."""
    return names_a_node(name) and name.lower() != "localhost"


def is_kubernetes_name(name: str) -> bool:
    """Whether a node of Kubernetes can be called so."""
    return is_node_name(name) and _KUBERNETES.match(name) is not None


def reason_of(incident: int, cause: str) -> str:
    """Return the reason that Slurm and Kubernetes show, without anything to be quoted."""
    return f"paceline-incident-{incident}-{re.sub(r'[^a-z0-9]+', '-', cause.lower())[:32]}"


def taint_value(cause: str) -> str:
    """Return the value of the taint: a label's value."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", cause)[:63].strip("-._") or "unknown"


def proposals(finding: Mapping[str, Any], incident: int) -> list[Proposal]:
    """Return what could be done about the nodes that a finding names."""
    if finding["kind"] not in KINDS or finding["cause"] in _NOT_THE_NODE or not finding["ranks"]:
        return []
    found = []
    reason, cause = reason_of(incident, finding["cause"]), finding["cause"]
    for node in [str(one) for one in finding["nodes"] if is_node_name(str(one))][:MAX_NODES]:
        found.append(
            Proposal(
                action="slurm-drain",
                node=node,
                command=f"scontrol update nodename={node} state=drain reason={reason}",
                undo=f"scontrol update nodename={node} state=resume",
            )
        )
        if is_kubernetes_name(node):
            found.append(
                Proposal(
                    action="kubernetes-taint",
                    node=node,
                    command=f"kubectl taint nodes {node} {TAINT}={taint_value(cause)}:NoSchedule",
                    undo=f"kubectl taint nodes {node} {TAINT}:NoSchedule-",
                )
            )
    return found
