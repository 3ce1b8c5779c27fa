"""What ``paceline simulate bsp`` says about its figures."""

from __future__ import annotations

import numpy as np

from paceline.counted import counted
from paceline_service.analysis.costs.words import duration_of
from paceline_service.commands.simulate_source import Source
from paceline_service.export.units import format_ratio, format_times
from paceline_service.simulate import uneven
from paceline_service.simulate.bsp import Bsp

_MATTERS = 0.02
_FEW = 5
"""So often somebody is the last by chance."""
_EXPLAINED = 0.05
"""Of the measured step: a model of one barrier is not asked for more."""


def title(run: Bsp) -> str:
    """Return the first line."""
    return f"BSP: {run.compute_s.shape[1]:,} ranks meet at a barrier in each step"


def lasts(run: Bsp) -> list[int]:
    """Return in how many steps each rank was the last (R,)."""
    return [int(one) for one in np.bincount(run.slowest_rank, minlength=run.compute_s.shape[1])]


def communication_ratio(run: Bsp) -> float:
    """Return the part of the wall-clock that is communication."""
    return len(run.compute_s) * run.communication_s / run.wall_clock_s


def stands_out(run: Bsp, place: int) -> bool:
    """Return whether a rank is slower than the others by itself, not by chance."""
    return uneven.stands_out(run.expected_s, place)


def _often(run: Bsp) -> str:
    last, count = lasts(run)[run.straggler], len(run.compute_s)
    if last == count:
        return "every step"
    return f"{last:,} of {counted(count, 'step')}"


def _erratic(run: Bsp) -> int | None:
    """Return the rank that is the last much more often than its turn, though not by its mean."""
    counts, (steps, ranks) = lasts(run), run.compute_s.shape
    most = max(range(ranks), key=counts.__getitem__)
    turn = steps / ranks
    often = max(1.5 * turn + 4 * turn**0.5, steps / 10, _FEW)
    return most if counts[most] > often else None


def _told_erratic(run: Bsp, source: Source, rank: int, cost: float) -> str:
    others = np.delete(run.compute_s, rank, axis=1).max(axis=1).sum()
    alone = float(others) + len(run.compute_s) * run.communication_s
    label = source.labels[rank]
    return (
        f"{label[0].upper()}{label[1:]} is hardly slower on average, but its times spread more: it "
        f"is the last in {lasts(run)[rank]:,} of {counted(len(run.compute_s), 'step')}. Waiting "
        "takes "
        f"{format_ratio(cost)} of the wall-clock; if that rank never were the last, the steps "
        f"would take {duration_of(alone)}, {format_ratio(1 - alone / run.wall_clock_s)} less."
    )


def _told_uneven(run: Bsp, cost: float) -> str:
    least, most = (duration_of(float(one)) for one in (run.expected_s.min(), run.expected_s.max()))
    return (
        f"Several ranks are always slower: ranks compute {least} to {most} on average, and most "
        f"waiting is for that and not for chance. It costs {format_ratio(cost)} of the wall-clock, "
        f"{duration_of(run.idle_injected_s)} that perfect balance would not take: give slower "
        "ranks less to do, or find out what they have in common."
    )


def meaning(run: Bsp, source: Source) -> list[str]:
    """Return what a newcomer should take away."""
    return [*_meaning(run, source), *_against_measured(run, source)]


def _against_measured(run: Bsp, source: Source) -> list[str]:
    """Return whether barriers explain the step that was measured."""
    measured_s = source.measured_step_s
    if measured_s is None:
        return []
    simulated_s = run.wall_clock_s / len(run.compute_s)
    off = measured_s / simulated_s - 1
    told = (
        f"The job's steps took {duration_of(measured_s)}, simulated they take "
        f"{duration_of(simulated_s)}: "
    )
    if abs(off) < _EXPLAINED:
        return [told + "work, barrier and transfer explain them."]
    if off > 0:
        return [
            f"{told}{format_ratio(off)} more than one barrier a step explains. Waits that are "
            "passed on, as in a pipeline or between several groups, are not in this model "
            "(`paceline analyze` names them)."
        ]
    return [
        f"{told}{format_ratio(-off)} less than with a barrier in every step, so not all ranks "
        "wait for each other in every step."
    ]


def _meaning(run: Bsp, source: Source) -> list[str]:
    cost = run.idle_injected_s / run.wall_clock_s
    slow, label = run.straggler, source.labels[run.straggler]
    if cost < -_MATTERS:
        return [
            f"What was drawn here ({counted(len(run.compute_s), 'step')}) is less work than ranks "
            "have on average, by luck, so nothing can be said of them: give more --steps."
        ]
    if not uneven.alone(run.expected_s, slow):
        if cost < _MATTERS:
            return ["The ranks are in balance: waiting for each other costs next to nothing."]
        if stands_out(run, slow) or uneven.mostly_averages(
            run.expected_s, run.wait_total_s / run.compute_s.size
        ):
            return [_told_uneven(run, cost)]
        if (erratic := _erratic(run)) is not None:
            return [_told_erratic(run, source, erratic, cost)]
        return [
            f"No rank is slow by itself, and still waiting takes {format_ratio(cost)} of the "
            "wall-clock: in each step another rank is the last by chance. More ranks make it more "
            "(`paceline simulate tax`); less jitter, or a barrier every few steps, make it less "
            "(`paceline simulate ssp`)."
        ]
    others = float(np.delete(run.expected_s, slow).mean())
    said = [
        f"{label[0].upper()}{label[1:]} computes {format_times(run.expected_s[slow] / others)} "
        f"as long as the others and is the last in {_often(run)}: all wait for it there. "
        f"That costs {format_ratio(cost)} of the wall-clock, {duration_of(run.idle_injected_s)} "
        "that perfect balance would not take."
    ]
    if len(source.names) > 2:
        gained = 1 - run.without_straggler_s / run.wall_clock_s
        said.append(
            f"If {label} never were the last, the steps would take "
            f"{duration_of(run.without_straggler_s)}, {format_ratio(gained)} less: repair or "
            "replace it before buying more ranks."
        )
    return said
