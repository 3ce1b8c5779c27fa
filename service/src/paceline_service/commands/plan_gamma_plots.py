"""The plots of ``paceline plan gamma``."""

from __future__ import annotations

from dataclasses import replace

from paceline.counted import counted
from paceline_service.analysis.costs.gamma import (
    Load,
    Model,
    break_even_ranks,
    latency_parameters,
)
from paceline_service.analysis.costs.scaling import Point, point
from paceline_service.analysis.costs.words import count_of
from paceline_service.export.plots import Drawing, Line, Mark, plot

_POINTS = 60
_MS = 1e3


def gamma_plots(model: Model, load: Load, points: list[Point]) -> list[Drawing]:
    """Return both times over the number of ranks, and what the ranks give."""
    most = points[-1].ranks
    counts = sorted({round(most ** (place / _POINTS)) for place in range(_POINTS + 1)})
    shown = [point(model, load, count) for count in counts]
    first = break_even_ranks(model, load)
    marks = [Mark(first, f"gamma over 1 from {counted(first, 'rank')} on")] if first else []
    times = plot(
        "Time of one step", "ranks", "ms",
        [
            Line("compute", counts, [row.compute_s * _MS for row in shown]),
            Line("all-reduce", counts, [row.all_reduce_s * _MS for row in shown]),
            Line("step, nothing hidden", counts, [row.step_s * _MS for row in shown]),
            Line("step, overlapped at best", counts, [row.hidden_step_s * _MS for row in shown]),
        ],
        log_x=True, log_y=True, marks=marks,
    )  # fmt: skip
    gained = plot(
        "Throughput against one rank", "ranks", "times",
        [
            Line("by this model", counts, [row.speedup for row in shown]),
            Line("if communication cost nothing", counts, [float(count) for count in counts]),
        ],
        log_x=True, log_y=True, marks=marks,
    )  # fmt: skip
    return [times, gained, *([_sizes(model, most)] if model.alpha_s else [])]


def _sizes(model: Model, ranks: int) -> Drawing:
    """Return the all-reduce over the size of the model, and where latency is most of it."""
    even = latency_parameters(model, ranks)
    low, high = even / 100, max(even * 100, model.parameters)
    sizes = [low * (high / low) ** (place / _POINTS) for place in range(_POINTS + 1)]
    latency_ms = 2 * (ranks - 1) * model.alpha_s * _MS
    sent_ms = [replace(model, parameters=size).all_reduce_s(ranks) * _MS for size in sizes]
    return plot(
        f"All-reduce of {ranks:,} ranks, by size of the model (or of a bucket)", "parameters", "ms",
        [
            Line("all-reduce", sizes, sent_ms),
            Line("its latency", sizes, [latency_ms] * len(sizes)),
        ],
        log_x=True, log_y=True, marks=[Mark(even, f"mostly latency below {count_of(even)}")],
    )  # fmt: skip
