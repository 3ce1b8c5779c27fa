"""Which finding is about which fault."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from paceline_service.analysis.report import Finding
from paceline_service.bench.detect.feed import node_name
from paceline_service.bench.detect.scenario import FINDING_OF_FAULT, Scenario
from paceline_service.bench.detect.simulate.faults import Fault

NAMELESS = ("uniform_slowdown", "imbalance", "communication_bound")
"""Kinds that speak of the whole job and name nobody."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Which findings are right.

    Attributes:
        of_fault: for each fault the findings about it.
        false: findings that are about no fault and that the scenario does not make true.
    """

    of_fault: list[list[Finding]]
    false: list[Finding]

    def found(self, number: int, fault: Fault) -> bool:
        """Whether the findings name enough of ``fault``: of a node or stage half its ranks."""
        findings = self.of_fault[number]
        if not findings or not fault.ranks or fault.kind == "stage":
            return bool(findings)
        named = {rank for finding in findings for rank in finding.ranks}
        return 2 * len(named & set(fault.ranks)) >= len(fault.ranks)


def match(scenario: Scenario, findings: Iterable[Finding]) -> Matched:
    """Return which of ``findings`` are about which fault of ``scenario``."""
    faults = scenario.spec.faults
    of_fault: list[list[Finding]] = [[] for _ in faults]
    false = []
    for finding in findings:
        about = [
            number for number, fault in enumerate(faults) if is_about(finding, fault, scenario)
        ]
        for number in about:
            of_fault[number].append(finding)
        speaks_of_all = finding.kind in NAMELESS and finding.kind in scenario.verdicts
        if not about and not speaks_of_all:
            false.append(finding)
    return Matched(of_fault=of_fault, false=false)


def is_about(finding: Finding, fault: Fault, scenario: Scenario) -> bool:
    """Whether ``finding`` is of the right kind and names nobody but the culprits of ``fault``."""
    if finding.kind != FINDING_OF_FAULT[fault.kind]:
        return False
    if finding.kind in NAMELESS:
        return True
    if fault.on_network:
        return not scenario.localisable or _places(finding, fault, scenario)
    # Two ranks that are slow at once on one node may be one finding.
    guilty = {rank for other in scenario.spec.faults for rank in other.ranks}
    named = set(finding.ranks)
    return bool(named & set(fault.ranks)) and named <= guilty


def _places(finding: Finding, fault: Fault, scenario: Scenario) -> bool:
    """Whether the network finding points at the card or the link, and at nothing else."""
    node_of = scenario.spec.layout.node_size
    if fault.kind == "nic":
        if finding.links and not finding.nodes:
            ends = [{rank // node_of for rank in link} for link in finding.links]
            return all(fault.nodes[0] in nodes for nodes in ends)
        return set(finding.nodes) == {node_name(fault.nodes[0])}
    if finding.links:
        ends = [{rank // node_of for rank in link} for link in finding.links]
        return all(nodes == set(fault.nodes) for nodes in ends)
    return set(finding.nodes) == {node_name(number) for number in fault.nodes}
