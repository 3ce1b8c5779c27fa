"""What ``paceline plan gamma`` means, in words."""

from __future__ import annotations

from paceline.counted import counted
from paceline_service.analysis.costs.gamma import (
    Load,
    Model,
    break_even_local_batch,
    break_even_ranks,
    latency_parameters,
)
from paceline_service.analysis.costs.scaling import Point, fastest_ranks, point, speedup_limit
from paceline_service.analysis.costs.words import count_of, digits, duration_of
from paceline_service.export.units import format_ratio, format_times

_ELSE = (
    "A job that is slower than this table has another reason than the arithmetic: a straggler, the "
    "network, its input (paceline analyze says which)."
)


def meaning(model: Model, load: Load, points: list[Point]) -> list[str]:
    """Return what a newcomer should take away, the verdict first."""
    return [*_verdict(model, load, points), *_remedy(model, load, points), *_latency(model, points)]


def _verdict(model: Model, load: Load, points: list[Point]) -> list[str]:
    last = points[-1]
    first = break_even_ranks(model, load)
    if first is None or first > last.ranks:
        best = fastest_ranks(model, load) if load.fixed else None
        if best is not None and best <= last.ranks and best < load.most_ranks:
            return [
                f"More ranks do not help, though at {counted(last.ranks, 'rank')} gamma is only "
                f"{digits(last.gamma)}. {_limit(model, load)} {_ELSE}"
            ]
        most = f", up to the {load.amount:,.0f} that have a sample each,"
        where = (
            f"at no number of ranks{most if load.kind == 'global' else ''} does a step "
            "communicate longer than it computes"
            if first is None
            else f"only from {counted(first, 'rank')} on a step communicates longer than it "
            "computes"
        )
        return [
            f"More ranks help: {where}. At {counted(last.ranks, 'rank')} gamma is "
            f"{digits(last.gamma)}. {_ELSE}"
        ]
    since = (
        f"from {counted(first, 'rank')} on a step communicates longer than it computes (gamma over "
        "1), with "
        f"nothing broken; at {counted(last.ranks, 'rank')} {digits(last.gamma)} times as long."
    )
    if load.fixed:
        return [
            f"More ranks do not help: the ratio gamma, not the hardware. F{since[1:]} "
            f"{_limit(model, load)}"
        ]
    any_size = (
        " It is the same for a model of any size: compute and gradients both grow with it."
        if load.kind == "local" and model.alpha_s == 0
        else ""
    )
    more = "hardly change it" if model.alpha_s == 0 else "make it larger, message by message,"
    return [
        f"The ratio gamma, not the hardware, slows this job: {since} More ranks {more} at this "
        f"batch per rank; each gives {format_ratio(last.efficiency)} of what it could alone."
        f"{any_size}"
    ]


def _limit(model: Model, load: Load) -> str:
    best = fastest_ranks(model, load)
    limit = speedup_limit(model, load)
    floor_s = 2 * model.gradient_bytes / model.bytes_per_s
    if best == 1:
        return (
            f"One rank computes the whole batch in {duration_of(load.compute_s(model, 1))}; two "
            f"already take {duration_of(point(model, load, 2).step_s)} without overlap: this batch "
            "wants one rank, unless communication is hidden."
        )
    if best is None:
        return (
            f"However many ranks share this batch, a step without overlap never falls below "
            f"{duration_of(floor_s)}, the all-reduce alone: never {digits(limit)} times as "
            "fast as one rank."
        )
    step_s = point(model, load, best).step_s
    return (
        f"The shortest step without overlap is {duration_of(step_s)} with {counted(best, 'rank')} "
        f"({digits(limit)} times as fast as one rank); "
        + (
            "then each has one sample."
            if best == load.most_ranks
            else "more ranks make it longer, because each message costs "
            f"{duration_of(model.alpha_s)}."
        )
    )


def _remedy(model: Model, load: Load, points: list[Point]) -> list[str]:
    last = points[-1]
    if last.gamma <= 1:
        return []
    hidden = last.step_s / last.hidden_step_s
    overlap = (
        f"Overlap with the backward pass makes a step at {counted(last.ranks, 'rank')} "
        f"{format_times(hidden)} faster at best (column hidden)."
    )
    if load.timed:
        return [
            f"What changes gamma: {digits(last.gamma)} times the compute per rank at "
            f"{last.ranks:,} ranks (a larger batch, "
            "or several batches accumulated before one all-reduce), more bandwidth, or fewer "
            f"bytes. {overlap}"
        ]
    even = break_even_local_batch(model, last.ranks)
    return [
        f"What changes gamma: a batch of {count_of(round(even, 1))} samples per rank or more at "
        f"{last.ranks:,} ranks (larger, or accumulated over several before one all-reduce), more "
        f"bandwidth, or fewer bytes per parameter. Faster processors make gamma larger. "
        f"{overlap}"
    ]


def _latency(model: Model, points: list[Point]) -> list[str]:
    last = points[-1]
    if model.alpha_s == 0:
        return []
    even = latency_parameters(model, last.ranks)
    share = last.latency_s / last.all_reduce_s
    return [
        f"Latency is {format_ratio(share)} of the all-reduce at {last.ranks:,} ranks: "
        f"{2 * (last.ranks - 1):,} messages one after the other. It would be most of it for models "
        f"(or buckets) of fewer than {count_of(float(digits(even).replace(',', '')))} parameters."
    ]
