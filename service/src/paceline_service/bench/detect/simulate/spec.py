"""Everything that defines a simulated job; the same spec gives the same records."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from paceline.vocabulary import Phase
from paceline_service.bench.detect.simulate.faults import PHASES, Control, Fault
from paceline_service.bench.detect.simulate.layout import IntArray, Layout
from paceline_service.bench.detect.simulate.noise import Noise

FloatArray = NDArray[np.float64]
NS = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What a transfer of one dimension costs: ``alpha_s + bytes / bytes_per_s``."""

    alpha_s: float
    bytes_per_s: float


def _phases() -> dict[Phase, float]:
    return {
        Phase.HOST: 0.02, Phase.INPUT: 0.03, Phase.FORWARD: 0.30,
        Phase.BACKWARD: 0.60, Phase.OPTIMIZER: 0.05,
    }  # fmt: skip


def _links() -> dict[str, Link]:
    slow, fast = Link(alpha_s=60e-6, bytes_per_s=40e9), Link(alpha_s=20e-6, bytes_per_s=200e9)
    return {"dp": slow, "ep": slow, "shard": slow, "pp": slow, "tp": fast}


def _payloads() -> dict[str, float]:
    return {"dp": 1.0e9, "ep": 0.3e9, "shard": 0.4e9, "pp": 0.1e9, "tp": 0.6e9}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One job.

    Attributes:
        phase_s: own time of a rank per step and phase; about a second together.
        layers: parts of forward and backward with a collective after each.
        micro_batches: per step, in a pipeline.
        buckets: gradient buckets of a step; they overlap with backward.
        payload_bytes: of one operation, by dimension.
        comm_scale: multiplies them all.
        release_noise_s: sd by which ranks see a release at different times.
        shared_clocks: the ranks of a node have one clock; else each its own.
        telemetry: whether clocks and throttle reasons are sampled, once a step.
    """

    layout: Layout
    steps: int = 200
    seed: int = 1
    noise: Noise = field(default_factory=Noise)
    phase_s: dict[Phase, float] = field(default_factory=_phases)
    layers: int = 2
    micro_batches: int = 8
    buckets: int = 3
    links: dict[str, Link] = field(default_factory=_links)
    payload_bytes: dict[str, float] = field(default_factory=_payloads)
    comm_scale: float = 1.0
    transfer_jitter: float = 0.03
    release_noise_s: float = 0.0002
    shared_clocks: bool = True
    telemetry: bool = False
    faults: tuple[Fault, ...] = ()
    control: Control = field(default_factory=Control)

    @property
    def phase_ns(self) -> FloatArray:
        """Own time per phase, ns; (7,)."""
        out = np.zeros(PHASES)
        for phase, seconds in self.phase_s.items():
            out[phase] = seconds * NS
        return out

    @property
    def step_s(self) -> float:
        """Own time of a step."""
        return sum(self.phase_s.values())

    def bytes_of(self, dimension: str, part: float = 1.0) -> int:
        """Return the payload of one operation, or of a part of it."""
        return int(self.payload_bytes[dimension] * self.comm_scale * part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Telemetry of one rank, on its clock; the names are those of ``paceline.telemetry``."""

    rank: int
    time_ns: int
    values: dict[str, float | list[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What some steps left behind.

    Attributes:
        first_step: the first of them.
        steps: how many.
        columns: by name, rows of one rank together; ``rank`` is one of them.
        step_ns: (steps,) true duration of each for the slowest rank, from the one before.
        self_ns: (steps, R) true own time of each rank, pauses included; 0 where it is not there.
        samples: telemetry.
        groups: declared from now on: number of the first, and what they are.
        left: ranks that have ended with this chunk.
    """

    first_step: int
    steps: int
    columns: dict[str, IntArray]
    step_ns: FloatArray
    self_ns: FloatArray
    samples: list[Sample]
    left: tuple[int, ...] = ()
