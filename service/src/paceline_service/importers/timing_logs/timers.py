"""What the timers of the frameworks measure: by their names (docs/formats/timing-logs.md)."""

from __future__ import annotations

import re
from collections.abc import Collection

_COMMUNICATION = re.compile(
    r"(?:^|-)(?:recv|send)(?:-|$)|all-?reduce|all-?gather|reduce-scatter|grads-sync|"
    r"reduce-model-grads|gather-model-params|^pipe_"
)
_PHASES = (
    (re.compile(r"batch.generator|batch_input|^data"), "input"),
    (re.compile(r"^forward-compute$|^fwd(?:_inner)?$|^forward$"), "forward"),
    (re.compile(r"^backward-compute$|^bwd(?:_inner)?$|^backward(?:-backward)?$"), "backward"),
    (re.compile(r"^optimizer|^step$"), "optimizer"),
)
_PARTS = {
    "forward-backward": ("forward-compute", "backward-compute"),
    "optimizer": ("optimizer-inner-step", "optimizer-copy-to-main-grad", "optimizer-clip-main-grad",
                  "optimizer-unscale-and-check-inf"),
    "forward-compute": ("batch-generator",),
    "backward-reduce-model-grads": ("backward-params-all-reduce",),
    "backward": ("backward-backward", "backward-allreduce"),
    "step": ("optimizer", "step_allgather"),
    "bwd": ("bwd_inner", "bwd_allreduce"),
}  # fmt: skip
"""Timers that run while others do."""
_NEVER = re.compile(r"_microstep$|^interval-time$|-setup$|^load-checkpoint|^save-checkpoint|"
                    r"^eval|^train/valid|^startup|^gpu-sniff")  # fmt: skip
WITH_WAITS_INSIDE = ("optimizer-unscale-and-check-inf", "optimizer-clip-main-grad")
"""Parts of the optimizer that hold an all-reduce of one number among ranks."""


def phase_of(timer: str) -> str | None:
    """Return the phase that a timer is of; ``communication`` for what ranks do together."""
    if _COMMUNICATION.search(timer) or timer in WITH_WAITS_INSIDE:
        return "communication"
    return next((phase for pattern, phase in _PHASES if pattern.search(timer)), None)


def leaves(timers: Collection[str]) -> list[str]:
    """Return those of ``timers`` that hold no other of them, and are of training steps.

    ``forward-compute`` stays although the batch is fetched within it: what it takes beyond that is
    told by ``less_parts``.
    """
    kept = []
    for timer in timers:
        parts = [part for part in _PARTS.get(timer, ()) if part in timers]
        if not _NEVER.search(timer) and (not parts or timer == "forward-compute"):
            kept.append(timer)
    return kept


def less_parts(timer: str, ms: dict[str, float]) -> float:
    """Return what a timer took beyond the timers within it."""
    if timer != "forward-compute":
        return ms[timer]
    return max(ms[timer] - ms.get("batch-generator", 0.0), 0.0)
