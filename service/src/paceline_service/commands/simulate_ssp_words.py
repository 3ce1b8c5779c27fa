"""What ``paceline simulate ssp`` says about its figures."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from paceline.counted import counted
from paceline_service.analysis.costs.words import digits, duration_of
from paceline_service.commands.simulate_source import Source
from paceline_service.export.units import format_ratio, format_times
from paceline_service.simulate import uneven
from paceline_service.simulate.local_steps import LocalRun
from paceline_service.simulate.ssp import SspRun

_ENOUGH = 0.9
"""Of what any of the bounds gains: the smallest bound that reaches it is told."""
_MATTERS = 0.01
_HARDLY = 0.02
"""Of all ranks' time: so much waiting is next to none."""
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
    slower = _always_slower(barrier, source)
    said = [_bounded(runs, barrier, slower), _staleness(runs)]
    if len(rounds) > 1:
        said.append(_local(rounds, always=bool(slower)))
    return [one for one in said if one]


def _always_slower(barrier: SspRun, source: Source) -> str:
    """Return who is slower by itself, nothing where ranks wait by chance."""
    mean = source.ranks.expected_s
    slow = int(mean.argmax())
    if uneven.alone(mean, slow):
        factor = format_times(mean[slow] / float(np.delete(mean, slow).mean()))
        return f"{source.labels[slow].capitalize()} is always slower ({factor} the others)"
    if barrier.idle_ratio < _HARDLY:
        return ""
    if uneven.mostly_averages(mean, barrier.idle_s / float(barrier.updates.sum())):
        least, most = (duration_of(float(one)) for one in (mean.min(), mean.max()))
        return f"Several ranks are always slower ({least} to {most} on average)"
    return ""


def _bounded(runs: Sequence[SspRun], barrier: SspRun, slower: str) -> str:
    if all(run.bound == 0 for run in runs):
        return "Nothing is relaxed with --bounds 0: 0,1,inf would show what it gains."
    if slower:
        return f"{slower}: {_of_slower(runs, barrier)}"
    best = min(runs, key=lambda run: run.wall_clock_s)
    gained = 1 - best.wall_clock_s / barrier.wall_clock_s
    if gained < _MATTERS:
        why = (
            "the ranks hardly wait for each other"
            if barrier.idle_ratio < _HARDLY
            else f"ranks wait {format_ratio(barrier.idle_ratio)} of their time, and no less then"
        )
        return f"Relaxing the barrier gains next to nothing here: {why}."
    enough = next(
        run for run in runs if 1 - run.wall_clock_s / barrier.wall_clock_s >= _ENOUGH * gained
    )
    reached = format_ratio(1 - enough.wall_clock_s / barrier.wall_clock_s)
    which = "No bound at all" if enough.bound == math.inf else f"A bound of {enough.bound:.0f}"
    return (
        f"The ranks wait by chance, now for one and now for another. {which} gives {reached} less "
        f"wall-clock, of {format_ratio(gained)} at best in this table: idle "
        f"{format_ratio(barrier.idle_ratio)} to {format_ratio(enough.idle_ratio)} of all ranks' "
        "time."
    )


def _of_slower(runs: Sequence[SspRun], barrier: SspRun) -> str:
    """Return what bounds do for ranks that wait for one that is always slower."""
    finite = [run for run in runs if 0 < run.bound < math.inf]
    free = [run for run in runs if run.bound == math.inf]
    told = []
    if finite:
        gained = 1 - finite[-1].wall_clock_s / barrier.wall_clock_s
        told.append(
            f"a bound of {finite[-1].bound:.0f} only lends the others that many steps, then they "
            f"wait again, and the wall-clock falls by {format_ratio(gained)}."
        )
    if free:
        gained = 1 - free[0].wall_clock_s / barrier.wall_clock_s
        begin = "Without" if finite else "without"
        told.append(
            f"{begin} any bound the faster make updates of the slower too, {format_ratio(gained)} "
            f"less wall-clock: {free[0].updates.max():,} updates of one rank against "
            f"{free[0].updates.min():,} of another, so the model learns from unequal shares "
            "of the data."
        )
    return " ".join(told)


def _staleness(runs: Sequence[SspRun]) -> str:
    last = runs[-1]
    if last.bound == 0 or not (last.staleness.steps.any() or last.staleness.updates.any()):
        return ""
    who = "without a bound" if last.bound == math.inf else f"with s = {last.bound:.0f}"
    return (
        f"What the wall-clock does not show: {who} an update is computed from parameters that lack "
        f"{digits(float(last.staleness.steps.mean()))} steps of the slowest rank on average and up "
        f"to {last.staleness.steps.max():,}, and {digits(float(last.staleness.updates.mean()))} "
        "updates of others come in between. Steps are made faster; whether as many of them are "
        "enough is another question, which this model does not answer."
    )


def _local(rounds: Sequence[LocalRun], *, always: bool) -> str:
    first, last = rounds[0], rounds[-1]
    sent = f"{duration_of(last.communication_s)} instead of {duration_of(first.communication_s)}"
    told = f"Rounds of {counted(last.steps_per_round, 'step')} communicate {sent}. "
    if first.idle_ratio < _MATTERS:
        told += "There is hardly any waiting that they could save. "
    elif last.idle_s > _SAME * first.idle_s:
        told += "All ranks wait as long as before"
        told += ": it is for ranks that are always slower. " if always else ". "
    else:
        left = "; the rest is mostly for ranks that are always slower" if always else ""
        told += (
            f"All ranks together wait {duration_of(last.idle_s)} instead of "
            f"{duration_of(first.idle_s)}, for chance averages out over a round{left}. "
        )
    return told + "Within a round each rank trains on parameters of its own."
