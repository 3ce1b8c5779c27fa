"""What the training script tells of its synchronizations: a manifest that both sides read.

The script knows which parameters are in which bucket; what Paceline measures has an operation,
a size and a place in the order. The plan joins the two. No torch here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STRATEGIES = ("ddp", "zero2", "zero3")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Parameters whose gradients travel together: a bucket of DDP, a unit of FSDP.

    Attributes:
        bucket: its number, in the order of the first synchronization.
        names: of its parameters.
        parameters: how many numbers they are.
        payload_bytes: how many bytes.
    """

    bucket: int
    names: list[str]
    parameters: int
    payload_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One collective of a step: which operation, begun in which phase, for which bucket."""

    op: str
    phase: str
    bucket: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Buckets, and what is synchronized in each step, in order."""

    buckets: list[Bucket]
    calls: list[Call]
    first_step: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some steps of the job with one strategy and one size of buckets.

    Attributes:
        name: as tables call it.
        strategy: of ``STRATEGIES``.
        bucket_bytes: of DDP's buckets, as asked for.
        first_step, last_step: as Paceline counts them.
        plans: one, or two where DDP makes its buckets anew after its first step.
        losses: of each step, the mean over the ranks.
        step_s: duration of each step, on rank 0.
        accuracy: share of unseen sentences that are told right at the end.
        held_bytes: what a rank holds between steps: parameters, gradients, optimizer.
        peak_bytes: the most that was allocated on the device; 0 on a CPU.
    """

    name: str
    strategy: str
    bucket_bytes: int
    first_step: int
    last_step: int
    plans: list[Plan]
    losses: list[float]
    step_s: list[float]
    accuracy: float
    held_bytes: dict[str, int]
    peak_bytes: int

    def plan_of(self, step: int) -> Plan:
        """Return the plan that holds in ``step``."""
        return [p for p in self.plans if p.first_step <= step or p is self.plans[0]][-1]

    @property
    def plan(self) -> Plan:
        """The plan of all but the first steps."""
        return self.plans[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What was run, as rank 0 told it.

    Attributes:
        backend: ``gloo`` or ``nccl``.
        device: ``cpu`` or the name of the GPU.
        ranks: how many.
        parameters: of the model.
        probe_group: name of the process group on which transfers were measured one by one.
        stretches: what was trained, in order.
    """

    backend: str
    device: str
    ranks: int
    parameters: int
    probe_group: str
    stretches: list[Stretch] = field(default_factory=list)


def fsdp_calls(units: int, strategy: str) -> list[Call]:
    """Return what FSDP2 synchronizes in a step, operation by operation in its order.

    Unit 0 is the model around the blocks. It is gathered first, in backward too, since the head
    is in it; its gradients are there last, since the embeddings are in it.
    """
    inner = range(units - 1, 0, -1)
    calls = [Call(op="all_gather", phase="forward", bucket=unit) for unit in range(units)]
    if strategy == "zero3":
        calls += [Call(op="all_gather", phase="backward", bucket=unit) for unit in (0, *inner)]
    return calls + [Call(op="reduce_scatter", phase="backward", bucket=b) for b in (*inner, 0)]


def read_manifest(path: Path) -> Manifest:
    """Return the manifest that the training script wrote."""
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    stretches = [
        Stretch(**{**one, "plans": [_plan(plan) for plan in one["plans"]]})
        for one in value.pop("stretches")
    ]
    return Manifest(**value, stretches=stretches)


def _plan(value: dict[str, Any]) -> Plan:
    return Plan(
        buckets=[Bucket(**bucket) for bucket in value["buckets"]],
        calls=[Call(**call) for call in value["calls"]],
        first_step=value["first_step"],
    )
