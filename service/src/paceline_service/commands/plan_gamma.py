"""``paceline plan gamma``: communication over compute, and what more ranks would give."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.gamma import (
    FORWARD_BACKWARD,
    WITH_RECOMPUTATION,
    Load,
    Model,
    break_even_local_batch,
    break_even_ranks,
    latency_parameters,
)
from paceline_service.analysis.costs.scaling import Point, fastest_ranks, point, speedup_limit
from paceline_service.analysis.costs.words import (
    bandwidth_of,
    bytes_of,
    count_of,
    digits,
    duration_of,
    flops_of,
    times_column,
)
from paceline_service.commands.answer import PLAN, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.plan_compression import compression_of, compression_table
from paceline_service.commands.plan_gamma_words import meaning
from paceline_service.export.units import format_ratio

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_TITLE = "gamma: communication over compute of a data-parallel step"
_GLOBAL_BATCH = "2048"
NVLINK_SUMS = (600e9, 900e9, 1800e9)
"""Bytes/s in data sheets of A100, H100 and B200 that are twice what leaves a rank."""


def plan_gamma(
    parameters: Annotated[str, typer.Option(metavar="P", help="Of the model: 7B, 66M.")] = "7B",
    bytes_per_parameter: Annotated[
        float, typer.Option(metavar="G", help="Of a gradient on its way: 2 for bf16, 4 for fp32.")
    ] = 2.0,
    global_batch: Annotated[
        str | None,
        typer.Option(metavar="N", help="Samples a step of all ranks together; default 2048."),
    ] = None,
    local_batch: Annotated[
        str | None, typer.Option(metavar="B", help="Instead: samples a step of each rank.")
    ] = None,
    compute: Annotated[
        str | None, typer.Option(metavar="TIME", help="Instead: compute of each rank, 80ms.")
    ] = None,
    sequence: Annotated[str, typer.Option(metavar="N", help="Tokens in a sample.")] = "1",
    flops: Annotated[
        str, typer.Option(metavar="R", help="FLOP/s of a rank: 312T, 989TFLOP/s.")
    ] = "312T",
    utilization: Annotated[
        float, typer.Option(metavar="U", help="What of it is reached (MFU), above 0 to 1.")
    ] = 1.0,
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Activations are computed again: 8 P b, not 6.")
    ] = False,
    bandwidth: Annotated[
        str, typer.Option(metavar="B", help="Out of a rank, one direction: 50GB/s or 400Gb/s.")
    ] = "600GB/s",
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="Of a message (alpha): 5us.")
    ] = "0us",
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of ranks to compare.")
    ] = "1,4,16,64,256,1024",
    compress_by: Annotated[
        float | None, typer.Option(metavar="RATIO", help="Gradients compressed so many times.")
    ] = None,
    compress_speed: Annotated[
        str | None,
        typer.Option(metavar="B", help="Gradient bytes a second encoded and decoded: 200GB/s."),
    ] = None,
    compress_gathers: Annotated[
        bool,
        typer.Option("--compress-gathers", help="What is sent cannot be summed: top-k, signs."),
    ] = False,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Say how long a step computes and how long it communicates, and what more ranks would give.

    Compute 6 P b / R, ring all-reduce 2 (K-1) alpha + 2 (K-1)/K g P / B (docs/math/costs.md).
    Without options: 7 billion parameters, 2048 tokens a step.
    """
    if not 0 < utilization <= 1:
        raise ConfigError(f"--utilization is {utilization}: give a share above 0, at most 1")
    load = _load(global_batch, local_batch, compute)
    speed = units.parse_flops(flops, "--flops") * utilization
    model = Model(
        parameters=units.parse_count(parameters, "--parameters", unit="parameters"),
        bytes_per_parameter=units.positive(bytes_per_parameter, "--bytes-per-parameter", "bytes"),
        bytes_per_s=units.parse_bandwidth(bandwidth, "--bandwidth"),
        alpha_s=units.parse_duration_s(latency, "--latency", zero=True),
        flops_per_s=None if load.kind == "time" else speed,
        flops_per_parameter=WITH_RECOMPUTATION if recompute else FORWARD_BACKWARD,
        tokens_per_sample=units.parse_count(sequence, "--sequence"),
    )
    counts = _counts(ranks, load)
    points = [point(model, load, count) for count in counts]
    tables = [_table(model, load, points)]
    compression = compression_of(compress_by, compress_speed, gathers=compress_gathers)
    values, said = _values(model, load, points), meaning(model, load, points)
    if compression is not None:
        table, more, words = compression_table(model, compression, points)
        tables.append(table)
        values["compression"] = more
        said += words
    answer = Answer(
        schema=PLAN, model="gamma", title=_TITLE, input=_input(model, load, counts),
        given=_given(model, load, utilization), values=values, tables=tables, meaning=said,
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _load(global_batch: str | None, local_batch: str | None, compute: str | None) -> Load:
    asked = {"--global-batch": global_batch, "--local-batch": local_batch, "--compute": compute}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given: they exclude one another, give one")
    if compute is not None:
        return Load("time", units.parse_duration_s(compute, "--compute"))
    if local_batch is not None:
        return Load("local", units.parse_count(local_batch, "--local-batch", unit="samples"))
    text = _GLOBAL_BATCH if global_batch is None else global_batch
    return Load("global", units.parse_count(text, "--global-batch", unit="samples"))


def _counts(text: str, load: Load) -> list[int]:
    counts = sorted({units.parse_count(part, "--ranks", unit="ranks") for part in text.split(",")})
    units.group_of(counts[-1], "--ranks")
    if load.kind == "global" and counts[-1] > load.amount:
        raise ConfigError(
            f"--ranks {counts[-1]} is more than --global-batch {load.amount:.0f}: a rank would "
            "have less than a sample; give fewer ranks or a larger batch"
        )
    return counts


def _table(model: Model, load: Load, points: list[Point]) -> Table:
    compute = times_column([row.compute_s for row in points])
    sent = times_column([row.all_reduce_s for row in points])
    step = times_column([row.step_s for row in points])
    hidden = times_column([row.hidden_step_s for row in points])
    batch = [] if load.kind == "time" else ["batch\nper rank"]
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


def _input(model: Model, load: Load, counts: list[int]) -> dict[str, object]:
    name = {"global": "global_batch", "local": "local_batch", "time": "compute_s"}[load.kind]
    return {**asdict(model), name: load.amount, "ranks": counts}


def _given(model: Model, load: Load, utilization: float) -> list[str]:
    size = f"{count_of(model.parameters)} parameters of {digits(model.bytes_per_parameter)} bytes"
    lines = [f"{size}: {bytes_of(model.gradient_bytes)} of gradients a step, all of them at once"]
    if load.kind == "time":
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
    lines.append(
        "column hidden: a step with as much of the all-reduce behind the backward pass as fits"
    )
    return lines


def _values(model: Model, load: Load, points: list[Point]) -> dict[str, object]:
    even = None if load.kind == "time" else break_even_local_batch(model, points[-1].ranks)
    fixed = load.kind == "global"
    return {
        "rows": [asdict(row) for row in points],
        "break_even_ranks": break_even_ranks(model, load),
        "break_even_local_batch": even,
        "fastest_ranks": fastest_ranks(model, load) if fixed else None,
        "speedup_limit": speedup_limit(model, load) if fixed else None,
        "latency_parameters": latency_parameters(model, points[-1].ranks),
    }
