"""Who came late only because he had waited: told apart by communicators, without their order.

A rank that waits for a slow one in its tensor group comes late to its data group. In the order of
both the analysis sees that. Where the files do not tell the order for certain, this does: who
caused waits in one communicator, and stood still about as long in another with somebody who is
named too and stood still nowhere, is a victim of that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import FloatArray, Int64Array
from paceline_service.analysis.report import Finding
from paceline_service.importers.nccl_inspector.instances import Instances

WAITED_SHARE = 0.4
"""Of what a rank seems to have cost others: who stood still for so much of it was held up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waited:
    """What ranks waited and were waited for, over all comparable collectives.

    Attributes:
        waited_ns: by communicator and rank, in total.
        led_ns: (R,) longest wait of each collective at which the rank came last, in total.
        members: by communicator, its ranks.
    """

    waited_ns: Mapping[tuple[int, int], float]
    led_ns: FloatArray
    members: Sequence[frozenset[int]]

    def most_waited_ns(self, rank: int) -> float:
        """Return what a rank waited in the communicator in which it waited most."""
        return max((ns for (_, of), ns in self.waited_ns.items() if of == rank), default=0.0)

    def was_held_up(self, rank: int) -> bool:
        """Whether a rank stood still for much of what it seems to have cost others."""
        return self.most_waited_ns(rank) > WAITED_SHARE * float(self.led_ns[rank])


def waited(
    instances: Instances, exec_ns: Int64Array, members: Sequence[Int64Array], world_size: int
) -> Waited:
    """Sum up waits: durations beyond the shortest of each collective."""
    rows = np.flatnonzero(instances.comparable[instances.instance])
    shortest = np.minimum.reduceat(exec_ns, instances.first)
    longest = np.maximum.reduceat(exec_ns, instances.first)
    instance = instances.instance[rows]
    wait = exec_ns[rows] - shortest[instance]
    comm, rank = instances.comm[instance], instances.rank[rows]
    pairs, of_pair = np.unique(np.stack([comm, rank], axis=1), axis=0, return_inverse=True)
    sums = np.bincount(of_pair.reshape(-1), weights=wait)
    last = wait == 0
    led = np.bincount(
        rank[last], weights=(longest - shortest)[instance[last]], minlength=world_size
    )
    return Waited(
        led_ns=led.astype(np.float64),
        waited_ns={(c, r): s for (c, r), s in zip(pairs.tolist(), sums.tolist(), strict=True)},
        members=[frozenset(ranks.tolist()) for ranks in members],
    )


def without_victims(findings: Sequence[Finding], waits: Waited) -> list[Finding]:
    """Return the findings without slow ranks that were held up by another slow rank."""
    named = [f.ranks[0] for f in findings if f.kind == "straggler" and len(f.ranks) == 1]
    held_up = {rank for rank in named if waits.was_held_up(rank)}
    culprits = {
        rank: {
            other
            for ranks in waits.members
            if rank in ranks
            for other in named
            if other in ranks and other not in held_up
        }
        for rank in held_up
    }
    victims: dict[int, list[int]] = {}
    for rank, others in culprits.items():
        for other in others:
            victims.setdefault(other, []).append(rank)
    kept = []
    for finding in findings:
        (rank,) = finding.ranks if len(finding.ranks) == 1 else (-1,)
        if finding.kind == "straggler" and culprits.get(rank):
            continue
        if finding.kind == "straggler" and rank in victims:
            told = ", ".join(map(str, sorted(victims[rank])))
            sentence = f"rank {told} came late elsewhere only after waiting for it"
            finding = replace(finding, evidence=[*finding.evidence, sentence])
        kept.append(finding)
    return kept
