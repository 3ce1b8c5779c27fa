"""What ``paceline plan gamma`` shows: the table, what was assumed, what JSON has."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from paceline_service.analysis.costs.gamma import (
    Load,
    Model,
    break_even_local_batch,
    break_even_ranks,
    latency_parameters,
)
from paceline_service.analysis.costs.scaling import Point, fastest_ranks, speedup_limit
from paceline_service.analysis.costs.words import (
    bandwidth_of,
    bytes_of,
    count_of,
    digits,
    duration_of,
    flops_of,
    times_column,
)
from paceline_service.commands.answer import Table
from paceline_service.export.units import format_ratio

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

NVLINK_SUMS = (600e9, 900e9, 1800e9)
"""Bytes/s in data sheets of A100, H100 and B200 that are twice what leaves a rank."""


def steps_table(model: Model, load: Load, points: list[Point]) -> Table:
    """Return a row for each number of ranks."""
    compute = times_column([row.compute_s for row in points])
    sent = times_column([row.all_reduce_s for row in points])
    step = times_column([row.step_s for row in points])
    hidden = times_column([row.hidden_step_s for row in points])
    batch = [] if load.timed else ["batch\nper rank"]
    heads = [
        "ranks", *batch, f"compute\n{compute[0]}", f"all-reduce\n{sent[0]}", "gamma",
        "share\nof step",
        f"step\n{step[0]}", f"hidden\n{hidden[0]}", "against\n1 rank", "efficiency",
    ]  # fmt: skip
    rows = [
        [
            f"{row.ranks:,}",
            *([] if row.local_batch is None else [digits(row.local_batch)]),
            compute[1][place], sent[1][place], f"{row.gamma:,.3f}",
            format_ratio(row.communication_ratio), step[1][place], hidden[1][place],
            f"{row.speedup:,.2f}x", format_ratio(row.efficiency),
        ]
        for place, row in enumerate(points)
    ]  # fmt: skip
    over = frozenset(place for place, row in enumerate(points) if row.gamma > 1)

    def plots() -> list[Drawing]:
        from paceline_service.commands.plan_gamma_plots import gamma_plots

        return gamma_plots(model, load, points)

    return Table(
        title="One step, by number of ranks", heads=heads, rows=rows, marked=over, plots=plots
    )


def understood(model: Model, load: Load, counts: list[int]) -> dict[str, object]:
    """Return the arguments as they were understood, for JSON."""
    name = {
        "global": "global_batch", "local": "local_batch", "time": "compute_s",
        "shared": "compute_of_all_s",
    }[load.kind]  # fmt: skip
    return {**asdict(model), name: load.amount, "ranks": counts}


def assumed(model: Model, load: Load, utilization: float) -> list[str]:
    """Return the same in words, a line each."""
    size = f"{count_of(model.parameters)} parameters of {digits(model.bytes_per_parameter)} bytes"
    lines = [f"{size}: {bytes_of(model.gradient_bytes)} of gradients a step, all of them at once"]
    if load.kind == "shared":
        lines.append(f"a step is {duration_of(load.amount)} of compute, which the ranks share")
    elif load.timed:
        lines.append(f"every rank computes {duration_of(load.amount)} a step")
    else:
        whose = "all ranks together" if load.kind == "global" else "each rank"
        one = model.tokens_per_sample == 1
        tokens = " of one token" if one else f" of {count_of(model.tokens_per_sample)} tokens"
        lines.append(f"a step has {count_of(load.amount)} samples{tokens}, {whose}")
        share = "" if utilization == 1 else f" ({format_ratio(utilization)} of the peak)"
        lines.append(
            f"a rank computes {flops_of(model.flops_per_s or 0)}{share}, "
            f"{model.flops_per_parameter:.0f} FLOP per parameter and token"
        )
    alpha = f"{duration_of(model.alpha_s)} a message" if model.alpha_s else "messages cost no time"
    lines.append(f"out of a rank: {bandwidth_of(model.bytes_per_s)}, {alpha}")
    if model.bytes_per_s in NVLINK_SUMS:
        half = bytes_of(model.bytes_per_s / 2)
        lines.append(
            f"data sheets of NVLink add both directions: if this is such a number, give {half}/s"
        )
    lines.append(
        "column hidden: a step with as much of the all-reduce behind the backward pass as fits"
    )
    return lines


def figures(model: Model, load: Load, points: list[Point]) -> dict[str, object]:
    """Return what JSON has besides."""
    even = None if load.timed else break_even_local_batch(model, points[-1].ranks)
    return {
        "rows": [asdict(row) for row in points],
        "break_even_ranks": break_even_ranks(model, load),
        "break_even_local_batch": even,
        "fastest_ranks": fastest_ranks(model, load) if load.fixed else None,
        "speedup_limit": speedup_limit(model, load) if load.fixed else None,
        "latency_parameters": latency_parameters(model, points[-1].ranks),
    }
