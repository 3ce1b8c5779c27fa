"""What the faults of a job really cost: the same job is run without them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from paceline_service.bench.detect.scenario import Scenario
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.job import Simulation
from paceline_service.bench.detect.simulate.spec import FloatArray, JobSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What one fault costs while it lasts.

    Attributes:
        ratio: share of the job's time from its first to its last step, were it the only fault.
        recoverable: the same, with the other faults there all the time.
        wasted_gpu_s: what the other ranks stand still for it, given the other faults.
        steps: how many steps that is over.
    """

    ratio: float
    recoverable: float
    wasted_gpu_s: float
    steps: int


def costs(scenario: Scenario) -> list[Cost]:
    """Return what each fault of ``scenario`` costs."""
    spec = scenario.spec
    if not spec.faults:
        return []
    clean = _times(spec, ())
    together = _times(spec, spec.faults)
    found = []
    for number, fault in enumerate(spec.faults):
        alone = together if len(spec.faults) == 1 else _times(spec, (fault,))
        others = spec.faults[:number] + spec.faults[number + 1 :]
        without = clean if not others else _times(spec, others)
        window = slice(fault.first, min(fault.last + 1, spec.steps))
        victims = spec.layout.world_size - len(fault.ranks)
        lost_ns = float(together[window].sum() - without[window].sum())
        found.append(
            Cost(
                ratio=1 - float(clean[window].sum() / alone[window].sum()),
                recoverable=lost_ns / float(together[window].sum()),
                wasted_gpu_s=lost_ns / 1e9 * victims,
                steps=len(together[window]),
            )
        )
    return found


def _times(spec: JobSpec, faults: tuple[Fault, ...]) -> FloatArray:
    times = Simulation(replace(spec, faults=faults), emit=False).step_times_ns()
    return np.asarray(times)
