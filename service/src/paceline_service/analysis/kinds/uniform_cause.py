"""What all ranks share when all of them are slower than before (docs/math/kinds.md)."""

from __future__ import annotations

import numpy as np

from paceline import telemetry as names
from paceline.dataclass import dataclass
from paceline.vocabulary import Phase, phase_name
from paceline_service.analysis.causes.gpu import CLOCK_RATIO, REASON_EXCESS
from paceline_service.analysis.causes.telemetry import COLUMN, REASONS
from paceline_service.analysis.causes.watch import MAX_PEERS, CauseWatch, median_of_known
from paceline_service.analysis.records import FloatArray
from paceline_service.analysis.sets import distinct

PHASE_SHARE = 0.4
_CAUSES = {
    Phase.HOST: "host", Phase.INPUT: "input", Phase.COPY: "input", Phase.CHECKPOINT: "host",
}  # fmt: skip
ACTIONS = {
    "gpu_throttle": "nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE  # on some nodes: cooling and "
    "power of the room, a power limit that was set",
    "input": "iostat -x 1 3  # and the load of the shared file system that all ranks read",
    "host": "top -b -n 1 | head -20  # on some nodes: what else runs there since then",
    "compute": "git log  # what changed with that step: batch size, sequence length, a library",
    "unknown": "git log  # what changed with that step: batch size, sequence length, a library",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformCause:
    """Why all are slower."""

    cause: str
    phase: str | None
    sentences: list[str]
    action: str


def cause_of(
    watch: CauseWatch,
    world_size: int,
    *,
    before_ns: FloatArray,
    after_ns: FloatArray | None,
    past: tuple[int, int],
    now: tuple[int, int],
) -> UniformCause:
    """Return what changed on most ranks together with their speed.

    Args:
        watch: telemetry.
        world_size: R; some ranks, evenly spread, are looked at.
        before_ns: (7,) own time per phase before, empty where unknown.
        after_ns: (7,) the same since.
        past: first and last step before.
        now: first and last step since.
    """
    phase, cause, sentences = _phase(before_ns, after_ns)
    ranks = distinct(np.linspace(0, world_size - 1, min(world_size, MAX_PEERS)).astype(np.int64))
    known = [rank for rank in map(int, ranks) if rank in watch.telemetry.ranks]
    if known:
        was = median_of_known(np.stack([watch.own_past(rank, [past])[0] for rank in known]))
        since = median_of_known(np.stack([watch.own_past(rank, [now])[0] for rank in known]))
        held = _held_down(was, since)
        if held and phase not in ("input", "host"):
            return UniformCause(
                cause="gpu_throttle", phase=phase, sentences=sentences + held,
                action=ACTIONS["gpu_throttle"],
            )  # fmt: skip
        if without_cpu := _without_cpu(was, since):
            sentences += without_cpu
            cause = "host"
    return UniformCause(cause=cause, phase=phase, sentences=sentences, action=ACTIONS[cause])


def _without_cpu(was: FloatArray, since: FloatArray) -> list[str]:
    """Return what took the CPU from most ranks, where it takes more of it than before."""
    rows = (
        (names.CPU_STEAL, "the hypervisor took {now:.0%} of the CPU time"),
        (names.CGROUP_THROTTLED, "a CPU limit stopped them {now:.0%} of the time"),
        (names.RANK_RUN_QUEUE, "their main threads waited for a CPU {now:.0%} of the time"),
    )
    return [
        f"{text.format(now=min(_of(since, name), 1.0))} against {before:.0%} before"
        for name, text in rows
        if _of(since, name) - (before := float(np.nan_to_num(_of(was, name)))) >= REASON_EXCESS
    ]


def _phase(before_ns: FloatArray, after_ns: FloatArray | None) -> tuple[str | None, str, list[str]]:
    if after_ns is None or len(before_ns) != len(after_ns):
        return None, "unknown", []
    grown = np.maximum(after_ns - before_ns, 0.0)
    main = int(np.argmax(grown))
    if grown.sum() <= 0 or grown[main] < PHASE_SHARE * grown.sum():
        return None, "unknown", []
    if not (before_ns[1:] > 0).any():
        return None, "unknown", []  # the job tells no phases: all is HOST
    name = phase_name(Phase(main))
    sentence = (
        f"{name} took {after_ns[main] / 1e6:.1f} ms per step against {before_ns[main] / 1e6:.1f} "
        f"ms before, {grown[main] / grown.sum():.0%} of what all lost"
    )
    return name, _CAUSES.get(Phase(main), "compute"), [sentence]


def _held_down(was: FloatArray, since: FloatArray) -> list[str]:
    before_hz, now_hz = _of(was, names.SM_CLOCK), _of(since, names.SM_CLOCK)
    if not 0 < now_hz <= CLOCK_RATIO * before_hz:
        return []
    sentences = [
        f"the SM clock of most GPUs was {now_hz / 1e9:.2f} GHz against {before_hz / 1e9:.2f} GHz "
        "before"
    ]
    for key, (words, _) in REASONS.items():
        if _of(since, key) - np.nan_to_num(_of(was, key)) >= REASON_EXCESS:
            sentences.append(f"{words} was set in {_of(since, key):.0%} of their samples")
    return sentences


def _of(means: FloatArray, name: str) -> float:
    return float(means[COLUMN[name]])
