"""A labelled job: what is simulated, and what a right answer would be."""

from __future__ import annotations

from dataclasses import dataclass
from math import log1p

from paceline_service.bench.detect.limits import (
    SPREAD_SDS,
    allowed_steps,
    least_delay,
    steps_between_false_namings,
)
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.spec import JobSpec

FINDING_OF_FAULT = {
    "rank": "straggler",
    "node": "straggler",
    "stage": "stage_imbalance",
    "job": "uniform_slowdown",
    "rotating": "imbalance",
    "nic": "communication",
    "link": "communication",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One job and its truth.

    Attributes:
        family: what it is an example of.
        seed: it was drawn with.
        spec: the job, its faults included.
        verdicts: kinds that are right for the whole job; the first is what is expected.
        localisable: whether the records can tell where the network is slow.
        delay_scored: whether the delay until it is found counts.
        apart: why its faults are not counted; empty when they are.
    """

    family: str
    seed: int
    spec: JobSpec
    verdicts: tuple[str, ...]
    localisable: bool = True
    delay_scored: bool = False
    apart: str = ""

    @property
    def gamma(self) -> float:
        """Steps between two false namings at the default rate."""
        return steps_between_false_namings(self.spec.step_s)

    def peers(self, fault: Fault) -> int:
        """Return how many ranks do the same work as those of ``fault``, them included."""
        layout = self.spec.layout
        return layout.dp * layout.tp if fault.kind == "rank" else layout.world_size

    def delay_bound(self, fault: Fault) -> float:
        """Return the least delay until ``fault`` can be known, steps; infinite if never."""
        noise = self.spec.noise
        return least_delay(
            log1p(fault.slowdown) * len(fault.ranks or (0,)) ** 0.5,
            noise.jitter,
            peers=self.peers(fault),
            ranks=self.spec.layout.world_size,
            gamma=self.gamma,
            autocorrelation=noise.autocorrelation,
        )

    def plain_delay_bound(self, fault: Fault) -> float:
        """Return the same as if the noise of one step told nothing of the next."""
        noise = self.spec.noise
        return least_delay(
            log1p(fault.slowdown) * len(fault.ranks or (0,)) ** 0.5, noise.jitter,
            peers=self.peers(fault), ranks=self.spec.layout.world_size, gamma=self.gamma,
        )  # fmt: skip

    def reason_apart(self, fault: Fault) -> str:
        """Return why ``fault`` is scored apart; empty when it is not."""
        if self.apart:
            return self.apart
        if fault.on_network or fault.kind in ("job", "rotating"):
            return ""
        lasting = log1p(fault.slowdown)
        if fault.first == 0 and lasting < SPREAD_SDS * self.spec.noise.spread:
            return "within the healthy spread from the first step"
        if fault.kind == "stage":
            return ""
        last = min(fault.last, self.spec.steps - 1)
        if last - fault.first + 1 < allowed_steps(self.delay_bound(fault)):
            return "too short"
        return ""
