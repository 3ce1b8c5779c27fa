"""What a drawing has to know of a job beside its records."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.matching.groups import Members
from paceline_service.analysis.records import Group, Int64Array


@dataclass(slots=True, kw_only=True)
class DrawnJob:
    """Topology and clocks of a job, from a collector's frames or from imported files."""

    world_size: int
    groups: list[Group] = field(default_factory=list)
    """By the index that records use."""
    members: Members = field(default_factory=Members)
    nodes: dict[int, str] = field(default_factory=dict)
    clock_domains: dict[int, str] = field(default_factory=dict)
    wall_offsets_ns: dict[int, int] = field(default_factory=dict)
    """Per rank, what added to its clock gives its wall clock."""

    def add_group(self, group: Group) -> None:
        """Take the next group."""
        self.groups.append(group)
        self.members.add(group)

    def clock_numbers(self) -> Int64Array:
        """Return the number of each rank's clock, -1 where it shares none."""
        numbers = {domain: n for n, domain in enumerate(sorted(set(self.clock_domains.values())))}
        found = np.full(self.world_size, -1, dtype=np.int64)
        for rank, domain in self.clock_domains.items():
            found[rank] = numbers[domain]
        return found

    def title(self, rank: int) -> str:
        """Return how a rank is called in a drawing."""
        node = self.nodes.get(rank)
        return f"rank {rank} on {node}" if node else f"rank {rank}"
