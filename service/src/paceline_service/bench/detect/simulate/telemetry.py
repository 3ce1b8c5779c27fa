"""What NVML would say of the GPUs of a simulated job."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import Phase
from paceline_service.bench.detect.simulate.engine import Engine
from paceline_service.bench.detect.simulate.spec import Sample

CLOCK_HZ = 1.98e9
POWER_W = 650.0
DAMAGE_XID = 63
"""Row remapping: a memory error was repaired, and the GPU goes on."""
HARMLESS_XID = 31
"""A fault of the program, which says nothing of the GPU."""


def sample(engine: Engine) -> list[Sample]:
    """Return one sample per rank at the end of the step that was just run.

    A GPU that is held down runs at a clock lower by what it is slower; one that computes slowly
    for another reason runs at full clock. Healthy GPUs clock and draw a little differently. A
    damaged one reports it once, as it becomes slow; in the same step its neighbour reports what a
    program has done.
    """
    ranks = engine.layout.ranks
    throttled = np.zeros(len(engine.now))
    for fault in engine.spec.faults:
        if fault.cause == "gpu_throttle":
            throttled[list(fault.ranks)] = fault.size_at(engine.step)
    reported = {}
    for fault in engine.spec.faults:
        if fault.cause == "gpu_fault" and fault.first == engine.step:
            reported = {(rank + 1) % len(ranks): HARMLESS_XID for rank in fault.ranks}
            reported |= dict.fromkeys(fault.ranks, DAMAGE_XID)
    held = np.where(throttled > 0, engine.slow.factor[Phase.BACKWARD], 1.0)
    clock_hz = CLOCK_HZ / held * (1 - 0.002 * (np.arange(len(held)) % 5))
    at_ns = engine.clocks.show(ranks, engine.now[ranks])
    return [
        Sample(
            rank=int(rank),
            time_ns=int(time_ns),
            values={
                "sm_clock_hz": float(round(clock_hz[rank] / 15e6) * 15e6),
                "max_sm_clock_hz": CLOCK_HZ,
                "temperature_c": 89.0 if throttled[rank] > 0 else 66.0 + rank % 7,
                "power_w": POWER_W / float(held[rank]),
                "throttle_reasons": ["hw_thermal_slowdown"] if throttled[rank] > 0 else [],
                **({"xid": float(reported[rank])} if rank in reported else {}),
            },
        )
        for rank, time_ns in zip(ranks, at_ns, strict=True)
    ]  # fmt: skip
