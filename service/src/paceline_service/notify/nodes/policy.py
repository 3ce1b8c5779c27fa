"""Which actions an incident calls for, by what is configured: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from paceline_service.notify.message import Facts
from paceline_service.notify.nodes.proposals import KINDS, is_kubernetes_name, is_node_name
from paceline_service.notify.severity import at_least
from paceline_service.notify_settings import Severity

EVENT, CONDITION = "kubernetes-event", "kubernetes-condition"
CLEAR_CONDITION = "kubernetes-condition-clear"
TAINT, DRAIN = "kubernetes-taint", "slurm-drain"
TAKES_CAPACITY = frozenset({TAINT, DRAIN})
"""With these no new work comes to the node."""
_NOT_THE_NODE = frozenset({"input", "gc"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """An action on a node."""

    action: str
    node: str

    @property
    def takes_capacity(self) -> bool:
        """Whether it counts towards the limit of nodes."""
        return self.action in TAKES_CAPACITY


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is allowed."""

    allow: Sequence[str]
    nodes: Sequence[str]
    """Patterns of their names."""
    jobs: Sequence[str]
    causes: Sequence[str]
    """For which a node is taken out of service."""
    min_severity: Severity
    max_nodes: int
    """An incident that names more is not the fault of a node."""

    def wanted(self, facts: Facts) -> list[Wanted]:
        """Return what an incident calls for.

        Nothing while somebody knows of it or has silenced it: then a person decides.
        """
        if facts.kind not in KINDS or facts.cause in _NOT_THE_NODE:
            return []
        if not _any(facts.job, self.jobs):
            return []
        if facts.status == "resolved":
            return self._chosen(facts, (CLEAR_CONDITION,)) if CONDITION in self.allow else []
        if facts.status != "open" or not at_least(facts.severity, self.min_severity):
            return []
        if facts.node_count > self.max_nodes:
            return []
        actions = [one for one in (EVENT, CONDITION, TAINT, DRAIN) if one in self.allow]
        if facts.cause not in self.causes:
            actions = [one for one in actions if one not in TAKES_CAPACITY]
        return self._chosen(facts, actions)

    def _chosen(self, facts: Facts, actions: Sequence[str]) -> list[Wanted]:
        return [
            Wanted(action=action, node=node)
            for node in facts.nodes
            if _any(node, self.nodes)
            for action in actions
            if (is_node_name if action == DRAIN else is_kubernetes_name)(node)
        ]


def _any(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
