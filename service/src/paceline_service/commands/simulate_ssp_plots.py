"""The plots of ``paceline simulate ssp``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paceline_service.commands.simulate_source import Source
from paceline_service.export.plots import Drawing, Lane, Line, Span, lanes, plot
from paceline_service.simulate.local_steps import LocalRun
from paceline_service.simulate.ssp import SspRun, Steps, first_steps

_MOST_LINES = 5
_MOST_RANKS = 8
_BARRIERS_DRAWN = 6
_MOST_STEPS = 24
"""Of a rank until the last of these barriers: it may be four times as fast as the slowest."""
_MS = 1e3
_KINDS = {"work": "computes", "comm": "sends its update", "wait": "waits"}


def bound_plots(runs: Sequence[SspRun], steps: Steps, source: Source) -> list[Drawing]:
    """Return who does what when, wall-clock and idle over the bound, and how stale updates are."""
    finite = [run for run in runs if run.bound < math.inf]
    shown = [run.bound for run in finite if run.bound > 0][:1]
    shown += [run.bound for run in runs if run.bound == math.inf]
    drawings = [_sawtooth(steps, source, bound) for bound in [0, *shown]]
    if len(finite) > 1:
        drawings += [
            _over_bound(runs, finite, "Wall-clock of the same work", "s",
                        [run.wall_clock_s for run in runs]),
            _over_bound(runs, finite, "Waiting as a share of all ranks' time", "per cent",
                        [run.idle_ratio * 100 for run in runs]),
        ]  # fmt: skip
    stale = [run for run in runs if run.bound != 0 and run.staleness.steps.max() > 0]
    if stale:
        drawings.append(_staleness(_some(stale)))
    return drawings


def round_plot(runs: Sequence[LocalRun]) -> Drawing:
    """Return what rounds of local steps take."""
    lengths = [run.steps_per_round for run in runs]
    return plot(
        "Wall-clock of the same work in rounds of local steps", "steps a round", "s",
        [
            Line("wall-clock", lengths, [run.wall_clock_s for run in runs]),
            Line("of it communication", lengths, [run.communication_s for run in runs]),
        ],
        log_x=True,
    )  # fmt: skip


def _sawtooth(steps: Steps, source: Source, bound: float) -> Drawing:
    """Return the first steps under a bound, all bounds until the same moment."""
    barrier_s = first_steps(steps, source.communication_s, _BARRIERS_DRAWN, 0)[1]
    end_ms = float(barrier_s.max()) * _MS
    start_s, ready_s = first_steps(steps, source.communication_s, _MOST_STEPS, bound)
    mean_s = source.ranks.expected_s
    chosen = sorted(range(len(mean_s)), key=lambda rank: (-mean_s[rank], rank))[:_MOST_RANKS]
    rows = []
    for rank in sorted(chosen):
        spans: list[Span] = []
        for step in range(_MOST_STEPS):
            begin, ready = start_s[step, rank] * _MS, ready_s[step, rank] * _MS
            sent = ready - source.communication_s * _MS
            again = start_s[step + 1, rank] * _MS
            for left, right, kind in (
                (begin, sent, "work"), (sent, ready, "comm"), (ready, again, "wait"),
            ):  # fmt: skip
                if min(right, end_ms) > left:
                    spans.append(Span(left, min(right, end_ms), kind, f"step {step}"))
        rows.append(Lane(source.labels[rank], spans))
    how = {0: "A barrier in every step (s = 0)", math.inf: "No bound: asynchronous"}
    which = "" if len(chosen) == len(mean_s) else f", {_MOST_RANKS} of {len(mean_s):,} ranks"
    return lanes(
        how.get(bound, f"At most {bound:.0f} ahead (s = {bound:.0f})") + which, "ms", rows, _KINDS
    )


def _over_bound(
    runs: Sequence[SspRun], finite: Sequence[SspRun], title: str, unit: str, values: list[float]
) -> Drawing:
    bounds = [run.bound for run in finite]
    lines = [Line("with the bound s", bounds, values[: len(finite)])]
    if len(runs) > len(finite):
        ends = [bounds[0], bounds[-1]]
        lines.append(Line("without a bound (asynchronous)", ends, [values[-1]] * 2))
    return plot(title, "bound s, steps", unit, lines)


def _staleness(runs: Sequence[SspRun]) -> Drawing:
    """Return which part of the updates lacks at most so many steps."""
    most = max(len(run.staleness.steps_histogram()) for run in runs)
    lines = []
    for run in runs:
        counts = run.staleness.steps_histogram()
        total, reached, shares = sum(counts), 0, []
        for count in counts:
            reached += count
            shares.append(100 * reached / total)
        shares += [100.0] * (most - len(shares))
        name = "no bound" if run.bound == math.inf else f"s = {run.bound:.0f}"
        lines.append(Line(name, list(range(most)), shares))
    return plot(
        "How stale updates are: share that lacks at most so many steps", "steps", "per cent", lines
    )


def _some(runs: Sequence[SspRun]) -> Sequence[SspRun]:
    """Return so many as can be told apart, the last among them."""
    every = -(-len(runs) // _MOST_LINES)
    return list(runs[::-1][::every][::-1])
