"""``paceline plan gamma``: communication over compute, and what more ranks would give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.alpha_beta import Link
from paceline_service.analysis.costs.gamma import (
    FORWARD_BACKWARD,
    WITH_RECOMPUTATION,
    Load,
    Model,
)
from paceline_service.analysis.costs.scaling import point
from paceline_service.commands.answer import PLAN, Answer, FormatOption, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.plan_calibrated import Calibrated, read_calibrated
from paceline_service.commands.plan_compression import compression_of, compression_table
from paceline_service.commands.plan_gamma_tables import assumed, figures, steps_table, understood
from paceline_service.commands.plan_gamma_words import meaning

_TITLE = "gamma: communication over compute of a data-parallel step"
_GLOBAL_BATCH = "2048"
_PARAMETERS, _BANDWIDTH, _LATENCY = "7B", "600GB/s", "0us"
_RANKS = "1,4,16,64,256,1024"


def plan_gamma(
    parameters: Annotated[
        str | None, typer.Option(metavar="P", help="Of the model: 7B, 66M; 7B.")
    ] = None,
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
    at_ranks: Annotated[
        str | None,
        typer.Option(metavar="K", help="TIME is of K ranks: others share that batch."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A job's report (JSON): its compute and its network."),
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
        str | None,
        typer.Option(metavar="B", help="Out of a rank, one direction: 50GB/s, 400Gb/s; 600GB/s."),
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="TIME", help="Of a message (alpha): 5us; none.")
    ] = None,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="LIST", help=f"Numbers of ranks to compare; {_RANKS}."),
    ] = None,
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
    found = None if report is None else read_calibrated(report)
    if found is not None and parameters is None:
        raise ConfigError("--parameters is missing: no report tells how large a model is")
    load = _load(global_batch, local_batch, compute, at_ranks, found)
    speed = units.parse_flops(flops, "--flops") * utilization
    link = _link(bandwidth, latency, found)
    model = Model(
        parameters=units.parse_count(
            _PARAMETERS if parameters is None else parameters, "--parameters", unit="parameters"
        ),
        bytes_per_parameter=units.positive(bytes_per_parameter, "--bytes-per-parameter", "bytes"),
        bytes_per_s=link.bytes_per_s,
        alpha_s=link.alpha_s,
        flops_per_s=None if load.timed else speed,
        flops_per_parameter=WITH_RECOMPUTATION if recompute else FORWARD_BACKWARD,
        tokens_per_sample=units.parse_count(sequence, "--sequence"),
    )
    counts = _counts(ranks, load, found)
    points = [point(model, load, count) for count in counts]
    tables = [steps_table(model, load, points)]
    compression = compression_of(compress_by, compress_speed, gathers=compress_gathers)
    values, said = figures(model, load, points), meaning(model, load, points)
    if compression is not None:
        table, more, words = compression_table(model, compression, points)
        tables.append(table)
        values["compression"] = more
        said += words
    if found is not None:
        said.insert(1, found.beside(point(model, load, found.ranks)))
        values["observed_step_s"] = found.observed_s
    answer = Answer(
        schema=PLAN, model="gamma", title=_TITLE, input=understood(model, load, counts),
        given=assumed(model, load, utilization), values=values, tables=tables, meaning=said,
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _load(
    global_batch: str | None,
    local_batch: str | None,
    compute: str | None,
    at_ranks: str | None,
    found: Calibrated | None,
) -> Load:
    asked = {"--global-batch": global_batch, "--local-batch": local_batch, "--compute": compute}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{' and '.join(given)} are given: they exclude one another, give one")
    if compute is not None or (found is not None and not given):
        if compute is not None:
            compute_s = units.parse_duration_s(compute, "--compute")
        else:
            assert found is not None
            compute_s = found.compute_s
        if at_ranks is None:
            return Load("time", compute_s)
        count = units.parse_count(at_ranks, "--at-ranks", unit="ranks")
        return Load("shared", compute_s * count)
    if at_ranks is not None:
        raise ConfigError("--at-ranks is given without --compute or --report: give one of them")
    if local_batch is not None:
        return Load("local", units.parse_count(local_batch, "--local-batch", unit="samples"))
    text = _GLOBAL_BATCH if global_batch is None else global_batch
    return Load("global", units.parse_count(text, "--global-batch", unit="samples"))


def _link(bandwidth: str | None, latency: str | None, found: Calibrated | None) -> Link:
    """Return what is given, else what a job's report tells, else the example."""
    measured = None
    if found is not None and bandwidth is None:
        measured = found.link()
    if bandwidth is not None or measured is None:
        bytes_per_s = units.parse_bandwidth(
            _BANDWIDTH if bandwidth is None else bandwidth, "--bandwidth"
        )
    else:
        bytes_per_s = measured.bytes_per_s
    if latency is not None or measured is None:
        alpha_s = units.parse_duration_s(
            _LATENCY if latency is None else latency, "--latency", zero=True
        )
    else:
        alpha_s = measured.alpha_s
    return Link(alpha_s=alpha_s, bytes_per_s=bytes_per_s)


def _counts(text: str | None, load: Load, found: Calibrated | None) -> list[int]:
    if text is None and found is not None:
        return sorted({max(found.ranks // 2, 1), *(found.ranks * more for more in (1, 2, 4, 8))})
    asked = _RANKS if text is None else text
    counts = sorted({units.parse_count(one, "--ranks", unit="ranks") for one in asked.split(",")})
    units.group_of(counts[-1], "--ranks")
    if load.kind == "global" and counts[-1] > load.amount:
        raise ConfigError(
            f"--ranks {counts[-1]} is more than --global-batch {load.amount:.0f}: a rank would "
            "have less than a sample; give fewer ranks or a larger batch"
        )
    return counts
