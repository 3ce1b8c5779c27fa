"""The families of the suite: each draws one labelled job from a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paceline_service.bench.detect.draw import (
    FLAT,
    LONGEST,
    PARALLEL,
    PIPELINES,
    SIZES,
    draw_causes,
    draw_layout,
    draw_noise,
    pick,
)
from paceline_service.bench.detect.limits import allowed_steps
from paceline_service.bench.detect.scenario import FINDING_OF_FAULT, Scenario
from paceline_service.bench.detect.simulate.faults import Fault
from paceline_service.bench.detect.simulate.layout import Layout
from paceline_service.bench.detect.simulate.spec import JobSpec

Rng = np.random.Generator
Builder = Callable[[Rng, int], Scenario]
TAIL_STEPS = 20
ON_GPU = ("gpu_throttle", "gpu_fault")
"""Causes that telemetry tells."""
WARM_UP_BOUNDS = 4.0
"""A rank's past must be this many times as long as the fault takes to be known. A shift seen in m
steps against a past of n is as clear as one in m n / (n + m) against a past without end: four times
as long costs a third, and with a past as short as the bound no method knows it in any time."""


def _scored(
    family: str, seed: int, rng: Rng, spec: JobSpec, fault: Fault, *, delay_scored: bool = False,
    verdicts: tuple[str, ...] = (), localisable: bool = True,
) -> Scenario:  # fmt: skip
    """Return a job long enough for ``fault`` to be scored; too small a fault is made larger."""
    expected = verdicts or (FINDING_OF_FAULT[fault.kind],)
    bigger = [size for size in SIZES if size > fault.slowdown]
    while True:
        scenario = Scenario(
            family=family, seed=seed, spec=replace(spec, faults=(fault,)), verdicts=expected,
            delay_scored=delay_scored and scenario_peers(spec.layout) >= 8, localisable=localisable,
        )  # fmt: skip
        bound = scenario.delay_bound(fault)
        needed = allowed_steps(bound)
        if needed <= LONGEST or not bigger:
            break
        fault = replace(fault, slowdown=bigger.pop(0))
    if fault.first and needed <= LONGEST:
        fault = replace(fault, first=max(fault.first, int(np.ceil(WARM_UP_BOUNDS * bound))))
    last = fault.first + fault.ramp_steps + int(min(needed, LONGEST)) + TAIL_STEPS
    steps = max(last, fault.first + fault.ramp_steps + 60)
    spec = replace(spec, steps=steps, faults=(fault,), telemetry=fault.cause in ON_GPU)
    return replace(scenario, spec=spec)


def scenario_peers(layout: Layout) -> int:
    """Return how many ranks do the same work."""
    return layout.dp * layout.tp


def _any_rank(rng: Rng, layout: Layout) -> int:
    return int(rng.integers(layout.world_size))


def _spec(rng: Rng, seed: int, layouts: tuple[Layout, ...], jitters: tuple[float, ...]) -> JobSpec:
    layout = draw_layout(rng, layouts)
    return JobSpec(
        layout=layout,
        seed=seed,
        micro_batches=2 * layout.pp,
        noise=draw_noise(rng, jitters),
        shared_clocks=bool(rng.random() < 0.7),
        release_noise_s=pick(rng, 0.0001, 0.0003),
    )


ALL_JITTERS = (0.005, 0.01, 0.02, 0.05, 0.10)
CALM = (0.005, 0.01, 0.02)


def sudden(rng: Rng, seed: int) -> Scenario:
    """A rank becomes slow at once, in a job without pipeline stages."""
    spec = _spec(rng, seed, FLAT, ALL_JITTERS)
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, *SIZES[2:]),
        cause=draw_causes(rng), first=int(rng.integers(60, 140)),
    )  # fmt: skip
    return _scored("sudden", seed, rng, spec, fault, delay_scored=True)


def small(rng: Rng, seed: int) -> Scenario:
    """A rank becomes slower by 0.5 to 4 % in a calm job."""
    spec = _spec(rng, seed, FLAT, CALM)
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, *SIZES[:4]),
        cause=draw_causes(rng), first=int(rng.integers(60, 140)),
    )  # fmt: skip
    return _scored("small", seed, rng, spec, fault, delay_scored=True)


def parallel(rng: Rng, seed: int) -> Scenario:
    """A rank becomes slow where others inherit its lateness: TP, PP and DP."""
    spec = _spec(rng, seed, PARALLEL, ALL_JITTERS)
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, *SIZES[3:]),
        cause=draw_causes(rng), first=int(rng.integers(60, 140)),
    )  # fmt: skip
    return _scored("parallel", seed, rng, spec, fault, delay_scored=True)


def large(rng: Rng, seed: int) -> Scenario:
    """One rank among a thousand."""
    spec = _spec(rng, seed, (Layout(dp=512), Layout(dp=1000), Layout(dp=64, tp=8)), CALM)
    spec = replace(spec, buckets=1, layers=1)
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, 0.1, 0.25, 0.5),
        cause=draw_causes(rng), first=int(rng.integers(60, 80)),
    )  # fmt: skip
    return _scored("large", seed, rng, spec, fault, delay_scored=True)


def creeping(rng: Rng, seed: int) -> Scenario:
    """A rank becomes slow over a hundred steps and more."""
    spec = _spec(rng, seed, FLAT + PARALLEL[:2], CALM)
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, 0.04, 0.1, 0.25),
        cause=draw_causes(rng), first=int(rng.integers(60, 140)),
        ramp_steps=int(rng.integers(80, 200)),
    )  # fmt: skip
    return _scored("creeping", seed, rng, spec, fault)


def transient(rng: Rng, seed: int) -> Scenario:
    """A rank is slow for a while and recovers."""
    spec = _spec(rng, seed, FLAT + PARALLEL[:2], (0.005, 0.01, 0.02, 0.05))
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, 0.1, 0.25, 0.5, 1.0),
        cause=draw_causes(rng), first=int(rng.integers(60, 140)),
    )  # fmt: skip
    scenario = _scored("transient", seed, rng, spec, fault, delay_scored=True)
    (fault,) = scenario.spec.faults
    length = int(np.ceil(allowed_steps(scenario.delay_bound(fault)) * rng.uniform(1.0, 1.5)))
    fault = replace(fault, last=fault.first + length)
    return replace(scenario, spec=replace(scenario.spec, faults=(fault,), steps=fault.last + 100))


def periodic(rng: Rng, seed: int) -> Scenario:
    """A rank stalls every so many steps: garbage collection, a log that is written."""
    spec = replace(_spec(rng, seed, FLAT + PARALLEL[:2], (0.005, 0.01, 0.02, 0.05)), steps=420)
    causes = ("gc", "gc", "input", "host")
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, 0.5, 1.0, 2.0),
        cause=causes[int(rng.integers(len(causes)))], first=int(rng.integers(20, 60)),
        period_steps=int(rng.integers(8, 31)),
    )  # fmt: skip
    return Scenario(
        family="periodic", seed=seed, spec=replace(spec, faults=(fault,)), verdicts=("straggler",)
    )


def rotating(rng: Rng, seed: int) -> Scenario:
    """In each step another rank is slow: nobody's fault, but an imbalance."""
    spec = replace(_spec(rng, seed, FLAT + PARALLEL[:2], (0.005, 0.01, 0.02)), steps=260)
    fault = Fault(
        kind="rotating", slowdown=pick(rng, 0.1, 0.25, 0.5), first=int(rng.integers(0, 60))
    )
    return Scenario(
        family="rotating", seed=seed, spec=replace(spec, faults=(fault,)), verdicts=("imbalance",)
    )


def two(rng: Rng, seed: int) -> Scenario:
    """Two ranks become slow, at once or one after the other."""
    spec = _spec(rng, seed, FLAT[1:] + PARALLEL[:2], (0.005, 0.01, 0.02, 0.05))
    one, other = map(int, rng.choice(spec.layout.world_size, 2, replace=False))
    first = int(rng.integers(60, 120))
    fault = Fault(
        kind="rank", ranks=(one,), slowdown=pick(rng, 0.1, 0.25, 0.5), cause=draw_causes(rng),
        first=first,
    )  # fmt: skip
    scenario = _scored("two", seed, rng, spec, fault)
    (fault,) = scenario.spec.faults
    second = replace(
        fault, ranks=(other,), cause=draw_causes(rng), first=fault.first + int(pick(rng, 0, 0, 40)),
        slowdown=fault.slowdown * pick(rng, 0.7, 1.0, 1.4),
    )  # fmt: skip
    faults = (fault, second)
    throttled = any(fault.cause == "gpu_throttle" for fault in faults)
    return replace(
        scenario,
        spec=replace(
            scenario.spec, faults=faults, steps=scenario.spec.steps + 60, telemetry=throttled
        ),
    )


def from_start(rng: Rng, seed: int) -> Scenario:
    """A rank is slow from its first step: there is no healthy past."""
    spec = _spec(rng, seed, FLAT + PARALLEL[:2], (0.005, 0.01, 0.02, 0.05))
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), cause=draw_causes(rng),
        slowdown=pick(rng, 0.04, 0.1, 0.25, 0.5, 1.0, 2.0),
    )  # fmt: skip
    scenario = _scored("from_start", seed, rng, spec, fault)
    steps = max(scenario.spec.steps, 120)
    return replace(scenario, spec=replace(scenario.spec, steps=steps))


def node(rng: Rng, seed: int) -> Scenario:
    """All ranks of a node become slow."""
    layouts = (Layout(dp=32), Layout(dp=16, node_size=4), Layout(dp=64), Layout(dp=8, tp=4))
    spec = _spec(rng, seed, layouts, ALL_JITTERS)
    number = int(rng.integers(spec.layout.world_size // spec.layout.node_size))
    ranks = range(number * spec.layout.node_size, (number + 1) * spec.layout.node_size)
    fault = Fault(
        kind="node", ranks=tuple(ranks), nodes=(number,), cause=draw_causes(rng),
        slowdown=pick(rng, 0.005, 0.01, 0.02, 0.04, 0.1, 0.25, 1.0),
        first=int(rng.integers(60, 140)),
    )  # fmt: skip
    return _scored("node", seed, rng, spec, fault)


def stage(rng: Rng, seed: int) -> Scenario:
    """One pipeline stage is slower than the others, on every replica."""
    spec = replace(_spec(rng, seed, PIPELINES, (0.005, 0.01, 0.02, 0.05)), steps=200)
    number = spec.layout.pp - 1 if rng.random() < 0.6 else int(rng.integers(spec.layout.pp))
    fault = Fault(
        kind="stage", ranks=tuple(map(int, spec.layout.stage(number))),
        slowdown=pick(rng, 0.05, 0.1, 0.2, 0.4, 1.0, 2.0), first=0 if rng.random() < 0.7 else 80,
    )  # fmt: skip
    return Scenario(
        family="stage", seed=seed, spec=replace(spec, faults=(fault,)),
        verdicts=("stage_imbalance",),
    )  # fmt: skip


def network(rng: Rng, seed: int) -> Scenario:
    """A network card or a link becomes slow, where groups can tell which."""
    layouts = (
        Layout(dp=32, shard=16), Layout(dp=16, shard=8, node_size=4),
        Layout(dp=4, pp=4, node_size=4), Layout(dp=4, tp=2, pp=4),
    )  # fmt: skip
    spec = _spec(rng, seed, layouts, (0.005, 0.01, 0.02, 0.05))
    spec = replace(
        spec, steps=260,
        payload_bytes={**spec.payload_bytes, "pp": 0.3e9},
    )  # fmt: skip
    nodes = spec.layout.world_size // spec.layout.node_size
    first, size = int(rng.integers(60, 140)), pick(rng, 0.1, 0.25, 0.5, 1.0, 2.0)
    here = int(rng.integers(nodes))
    if rng.random() < 0.5:
        fault = Fault(kind="nic", nodes=(here,), slowdown=size, cause="network", first=first)
    else:
        here = min(here, nodes - 2)
        pair = (here, here + 1) if spec.layout.pp > 1 else (here // 2 * 2, here // 2 * 2 + 1)
        fault = Fault(kind="link", nodes=pair, slowdown=size, cause="network", first=first)
    return Scenario(
        family="network", seed=seed, spec=replace(spec, faults=(fault,)),
        verdicts=("communication",),
    )  # fmt: skip


def uniform(rng: Rng, seed: int) -> Scenario:
    """Everybody becomes slower than the job's own past."""
    spec = replace(_spec(rng, seed, FLAT + PARALLEL[:2], ALL_JITTERS[:4]), steps=300)
    fault = Fault(kind="job", slowdown=pick(rng, 0.1, 0.25, 0.5), first=int(rng.integers(100, 160)))
    return Scenario(
        family="uniform", seed=seed, spec=replace(spec, faults=(fault,)),
        verdicts=("uniform_slowdown",),
    )  # fmt: skip


def gpu_error(rng: Rng, seed: int) -> Scenario:
    """A GPU reports damage and is slow from then on; its neighbour reports a program's fault."""
    spec = _spec(rng, seed, FLAT + PARALLEL[:2], (0.005, 0.01, 0.02, 0.05))
    fault = Fault(
        kind="rank", ranks=(_any_rank(rng, spec.layout),), slowdown=pick(rng, 0.1, 0.25, 0.5, 1.0),
        cause="gpu_fault", first=int(rng.integers(60, 140)),
    )  # fmt: skip
    return _scored("gpu_error", seed, rng, spec, fault, delay_scored=True)


REPORTED: dict[str, Builder] = {"gpu_error": gpu_error}
"""After all others, whose seeds go by their places."""
FAULTY: dict[str, Builder] = {
    "sudden": sudden, "small": small, "parallel": parallel, "large": large,
    "creeping": creeping, "transient": transient, "periodic": periodic, "rotating": rotating,
    "two": two, "from_start": from_start, "node": node, "stage": stage, "network": network,
    "uniform": uniform,
}  # fmt: skip
