"""Is it the host: the CPU, the interpreter, the data loader (docs/math/causes.md)."""

from __future__ import annotations

from paceline import telemetry as names
from paceline.dataclass import dataclass
from paceline_service.analysis.causes.watch import Surroundings

EXPLAINED = 0.5
"""What stopped a process must account for half of the time that its rank lost."""
MENTIONED = 0.2
"""From this share on it is mentioned."""
CPU_CLOCK_RATIO = 0.8
"""CPUs of one kind under load differ by less; a power-saving governor halves the clock."""
STALL_EXCESS = 0.2
"""Of the time some task of the node waited, more than on the peers' nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostHit:
    """What was found; ``cause`` is empty where it supports the given cause or is only told."""

    cause: str
    remedy: str
    sentences: list[str]


def host_trouble(around: Surroundings, excess_ns: float, *, given: str) -> HostHit | None:
    """Return what stopped the rank's process, as far as it explains the time lost.

    Args:
        around: pauses and samples of the same steps.
        excess_ns: what the rank lost per step.
        given: the cause so far; a cause from the phase ``input`` is kept, with its reasons told.
    """
    found = [*_pauses(around), *_shares(around)]
    found.sort(key=lambda item: -item[0])
    sentences, cause, remedy = [], "", ""
    for lost_ns, name, text in found:
        share = lost_ns / excess_ns if excess_ns > 0 else 0.0
        if share < MENTIONED:
            continue
        sentences.append(f"{text}, {min(share, 1.0):.0%} of what it lost")
        if share >= EXPLAINED and not cause:
            cause, remedy = ("gc" if name == "gc" else "host"), name
    if not cause and given in ("host", "unknown"):
        cpu = _cpu_clock(around)
        if cpu:
            sentences.append(cpu)
            cause, remedy = "host", "cpu_clock"
    told = sentences + _stalls(around)
    if given == "input" and cause == "host":
        cause, remedy = "", ""  # the loader is late because its host is: the phase stays the cause
    if not told:
        return None
    return HostHit(cause=cause, remedy=remedy, sentences=told)


def _pauses(around: Surroundings) -> list[tuple[float, str, str]]:
    """Return time lost per step, name and words of what the process itself recorded."""
    words = {
        "gc": "Python's garbage collector stopped it for {own:.1f} ms per step",
        "no_core": "its process was ready and had no core for {own:.1f} ms per step",
        "no_lock": "a thread waited for the interpreter's lock for {own:.1f} ms per step",
    }
    return [
        (around.paused_ns[name], name, text.format(own=around.own_paused_ns[name] / 1e6))
        for name, text in words.items()
        if around.paused_ns.get(name, 0.0) > 0
    ]


def _shares(around: Surroundings) -> list[tuple[float, str, str]]:
    """Return time lost per step, name and words of what the sidecar sampled as shares of time."""
    rows = (
        (names.RANK_RUN_QUEUE, "no_core", "its main thread waited for a CPU {own:.0%} of the time"),
        (names.CGROUP_THROTTLED, "cpu_limit", "its CPU limit stopped it {own:.0%} of the time"),
        (names.CPU_STEAL, "steal", "the hypervisor took {own:.0%} of its node's CPU time"),
    )
    out = []
    for column, name, text in rows:
        own, peers = around.value(column)
        if not own > 0:
            continue
        beyond = min(own, 1.0) - (peers if peers == peers else 0.0)
        if beyond > 0:
            against = f" (its peers {peers:.0%})" if peers == peers else ""
            words = text.format(own=min(own, 1.0)) + against
            out.append((beyond * around.step_ns, name, words))
    return out


def _cpu_clock(around: Surroundings) -> str:
    own, peers = around.value(names.CPU_CLOCK_MEAN)
    if 0 < own <= CPU_CLOCK_RATIO * peers:
        return f"its node's CPUs ran at {own / 1e9:.2f} GHz against {peers / 1e9:.2f} GHz"
    return ""


def _stalls(around: Surroundings) -> list[str]:
    rows = (
        (names.STALL_CPU, "a CPU"), (names.STALL_MEMORY, "memory"), (names.STALL_IO, "I/O"),
    )  # fmt: skip
    sentences = []
    for column, what in rows:
        own, peers = around.value(column)
        beyond = own - (peers if peers == peers else 0.0)
        if beyond >= STALL_EXCESS:
            against = f" against {peers:.0%} on its peers' nodes" if peers == peers else ""
            sentences.append(f"tasks of its node waited for {what} {own:.0%} of the time{against}")
    return sentences
