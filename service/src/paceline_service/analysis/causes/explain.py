"""Why a rank is slow: from its phase and what was sampled in the same steps.

The rules, their order and their thresholds are in docs/math/causes.md. A cause is named only
where the rank differs from its peers: what all of them share makes nobody late.
"""

from __future__ import annotations

from dataclasses import field

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline_service.analysis.causes.gpu import gpu_fault, gpu_throttle, pcie_fault
from paceline_service.analysis.causes.host import host_trouble
from paceline_service.analysis.causes.watch import Surroundings

_ON_GPU = ("forward", "backward", "optimizer", "copy", None)
"""Phases in which a slow GPU costs time; None is a job that tells no phases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptoms:
    """What the timeline says about a slow rank.

    Attributes:
        phase: where most of the excess is, None where unknown.
        phase_cause: the cause that the phase alone suggests.
        excess_ns: own time per step beyond the peers'.
        launched_late: whether its GPU stood idle until each launch; None where unknown.
        on_device: whether the phases are the device's.
    """

    phase: str | None
    phase_cause: str
    excess_ns: float
    launched_late: bool | None
    on_device: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A cause, what it stands on, and which remedy fits (``causes_actions``)."""

    cause: str
    remedy: str
    sentences: list[str] = field(default_factory=list)


def explain(symptoms: Symptoms, around: Surroundings) -> Explanation:
    """Return the cause that the evidence of the same window supports best."""
    hit = gpu_fault(around)
    if hit is not None:
        return Explanation(cause="gpu_fault", remedy=hit.remedy, sentences=hit.sentences)
    if _may_be_gpu(symptoms):
        sure = symptoms.phase not in ("host",) or symptoms.launched_late is False
        hit = gpu_throttle(around, sure=sure)
        if hit is not None:
            return Explanation(cause="gpu_throttle", remedy=hit.remedy, sentences=hit.sentences)
    if symptoms.phase in _ON_GPU and symptoms.launched_late is not True:
        hit = pcie_fault(around)
        if hit is not None:
            return Explanation(cause="gpu_fault", remedy=hit.remedy, sentences=hit.sentences)
    cause = symptoms.phase_cause
    if symptoms.launched_late and cause == "compute":
        cause = "host"
    elif symptoms.phase == "host" and not symptoms.on_device and symptoms.launched_late is False:
        cause = "compute"  # the host stood still because its device was busy
    host = host_trouble(around, symptoms.excess_ns, given=cause)
    if host is not None and host.cause:
        return Explanation(cause=host.cause, remedy=host.remedy, sentences=host.sentences)
    sentences = list(host.sentences) if host else []
    if cause in ("compute", "unknown") and _compared(around):
        sentences.append(_nothing_found(around))
    return Explanation(cause=cause, remedy=cause, sentences=sentences)


def _may_be_gpu(symptoms: Symptoms) -> bool:
    """Whether a slow GPU would show where the time was lost."""
    if symptoms.launched_late:
        return False  # its GPU was idle until each launch
    return symptoms.phase in _ON_GPU or (symptoms.phase == "host" and not symptoms.on_device)


def _compared(around: Surroundings) -> bool:
    own, peers = around.value("sm_clock_hz")
    return own == own and peers == peers


def _nothing_found(around: Surroundings) -> str:
    own, peers = around.value("sm_clock_hz")
    return (
        f"its GPU differs in nothing that was sampled: SM clock {own / 1e9:.2f} GHz against "
        f"{peers / 1e9:.2f} GHz on its {counted(around.peer_count, 'peer')}, no errors"
    )
