"""What ``paceline simulate ssp`` says about its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline_service.analysis.costs.words import digits, duration_of
from paceline_service.commands.simulate_source import Source
from paceline_service.export.units import format_ratio, format_times
from paceline_service.simulate.local_steps import LocalRun
from paceline_service.simulate.ssp import SspRun

_STANDS_OUT = 1.1
_ENOUGH = 0.9
"""Of what any of the bounds gains: the smallest bound that reaches it is told."""
_MATTERS = 0.01
_SAME = 0.9
"""Of the waiting of the shortest rounds: more than that is no gain."""


def told_bound(bound: float) -> str:
    """Return a bound in words."""
    return "none" if bound == math.inf else f"{bound:.0f}"


def json_bound(bound: float) -> int | str:
    """Return a bound as it stands in JSON, which has no infinity."""
    return "inf" if bound == math.inf else int(bound)


def change(now_s: float, before_s: float) -> str:
    """Return how much shorter or longer something has become."""
    ratio = now_s / before_s - 1
    if abs(ratio) < 0.0005:
        return "same"
    return ("+" if ratio > 0 else "-") + format_ratio(abs(ratio))


def meaning(
    runs: Sequence[SspRun], barrier: SspRun, rounds: Sequence[LocalRun], source: Source
) -> list[str]:
    """Return what a newcomer should take away."""
    said = [_bounded(runs, barrier, source), _staleness(runs)]
    if len(rounds) > 1:
        said.append(_local(rounds))
    return [one for one in said if one]


def _bounded(runs: Sequence[SspRun], barrier: SspRun, source: Source) -> str:
    finite = [run for run in runs if 0 < run.bound < math.inf]
    free = [run for run in runs if run.bound == math.inf]
    mean = source.ranks.expected_s
    slow = int(mean.argmax())
    alone = float(np.delete(mean, slow).mean())
    if mean[slow] > _STANDS_OUT * alone and finite:
        gained = 1 - finite[-1].wall_clock_s / barrier.wall_clock_s
        factor = format_times(mean[slow] / alone)
        told = (
            f"{source.labels[slow].capitalize()} is always slower ({factor} the others): a bound "
            f"of {finite[-1].bound:.0f} only lends the others that many steps, then they wait "
            f"again, and the wall-clock falls by {format_ratio(gained)}."
        )
        if free:
            gained = 1 - free[0].wall_clock_s / barrier.wall_clock_s
            told += (
                f" Without any bound the others make its updates too, {format_ratio(gained)} less "
                f"wall-clock: {free[0].updates.max():,} updates of one rank against "
                f"{free[0].updates.min():,} of another, so the model learns from unequal shares "
                "of the data."
            )
        return told
    best = min(runs, key=lambda run: run.wall_clock_s)
    gained = 1 - best.wall_clock_s / barrier.wall_clock_s
    if gained < _MATTERS:
        return (
            "Relaxing the barrier gains next to nothing here: the ranks hardly wait for each other."
        )
    enough = next(
        run for run in runs if 1 - run.wall_clock_s / barrier.wall_clock_s >= _ENOUGH * gained
    )
    reached = format_ratio(1 - enough.wall_clock_s / barrier.wall_clock_s)
    return (
        "The ranks wait by chance, now for one and now for another. A bound of "
        f"{told_bound(enough.bound)} already gives {reached} less wall-clock of the "
        f"{format_ratio(gained)} that any bound can give: idle {format_ratio(barrier.idle_ratio)} "
        f"to {format_ratio(enough.idle_ratio)} of all ranks' time."
    )


def _staleness(runs: Sequence[SspRun]) -> str:
    last = runs[-1]
    if last.bound == 0:
        return ""
    who = "without a bound" if last.bound == math.inf else f"with s = {last.bound:.0f}"
    return (
        f"What the wall-clock does not show: {who} an update is computed from parameters that lack "
        f"{digits(float(last.staleness.steps.mean()))} steps of the slowest rank on average and up "
        f"to {last.staleness.steps.max():,}, and {digits(float(last.staleness.updates.mean()))} "
        "updates of others come in between. Steps are made faster; whether as many of them are "
        "enough is another question, which this model does not answer."
    )


def _local(rounds: Sequence[LocalRun]) -> str:
    first, last = rounds[0], rounds[-1]
    sent = f"{duration_of(last.communication_s)} instead of {duration_of(first.communication_s)}"
    told = f"Rounds of {last.steps_per_round:,} steps communicate {sent}. "
    if last.idle_s > _SAME * first.idle_s:
        told += "All ranks wait as long as before: it is for a rank that is always slower. "
    else:
        told += (
            f"All ranks together wait {duration_of(last.idle_s)} instead of "
            f"{duration_of(first.idle_s)}, for chance averages out over a round. "
        )
    return told + "Within a round each rank trains on parameters of its own."
