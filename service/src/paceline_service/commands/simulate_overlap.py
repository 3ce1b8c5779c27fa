"""``paceline simulate overlap``: one backward pass, bucket by bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.overlap import (
    BUCKET_BYTES,
    BucketTime,
    bucket_sizes,
    equal_sizes,
    sized_buckets,
)
from paceline_service.analysis.costs.words import bytes_of, duration_of, times_column
from paceline_service.commands.answer import SIMULATE, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.overlap_options import (
    AllReduce,
    Asked,
    Backward,
    Bandwidth,
    Gradients,
    Latency,
    Launch,
    Ranks,
    asked_overlap,
)
from paceline_service.export.units import format_ratio

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_SHOWN = 6
"""Buckets at each end; the others are counted."""
_MOST_BUCKETS = 10_000


def simulate_overlap(
    backward: Backward = None,
    all_reduce: AllReduce = None,
    gradients: Gradients = None,
    bandwidth: Bandwidth = None,
    ranks: Ranks = None,
    latency: Latency = None,
    launch: Launch = "0us",
    bucket: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Of a bucket; 25MiB, torch's default.")
    ] = None,
    first_bucket: Annotated[
        str | None, typer.Option(metavar="BYTES", help="Of the first: 1MiB in torch's DDP.")
    ] = None,
    buckets: Annotated[
        str | None, typer.Option(metavar="N", help="Instead: so many, of one size.")
    ] = None,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Play a backward pass whose gradients are reduced in buckets, and show each of them.

    `paceline plan overlap` compares sizes of buckets and finds the best.
    """
    asked = asked_overlap(backward, all_reduce, gradients, bandwidth, latency, launch, ranks)
    sizes = _sizes(asked, bucket, first_bucket, buckets)
    played = sized_buckets(asked.model, sizes)
    answer = Answer(
        schema=SIMULATE, model="overlap",
        title="One backward pass, its gradients reduced in buckets",
        input={**asked.told(), "bucket_bytes": sizes[0] if len(set(sizes)) == 1 else sizes},
        given=asked.lines(), values=_values(asked, sizes, played),
        tables=[_table(asked, sizes, played)], meaning=_meaning(asked, sizes, played),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _sizes(
    asked: Asked, bucket: str | None, first_bucket: str | None, buckets: str | None
) -> list[int]:
    if buckets is not None:
        if bucket is not None or first_bucket is not None:
            raise ConfigError("--buckets makes buckets of one size: give it, or --bucket")
        sizes = equal_sizes(asked.gradient_bytes, units.parse_count(buckets, "--buckets"))
    else:
        first = None if first_bucket is None else units.parse_bytes(first_bucket, "--first-bucket")
        size = BUCKET_BYTES if bucket is None else units.parse_bytes(bucket, "--bucket")
        sizes = bucket_sizes(asked.gradient_bytes, size, first)
    if len(sizes) > _MOST_BUCKETS:
        raise ConfigError(
            f"{len(sizes):,} buckets are too many to show: give at most {_MOST_BUCKETS:,}, or see "
            "paceline plan overlap"
        )
    return sizes


def _table(asked: Asked, sizes: list[int], played: list[BucketTime]) -> Table:
    shown = list(range(len(played)))
    if len(shown) > 2 * _SHOWN + 1:
        shown = [*shown[:_SHOWN], -1, *shown[-_SHOWN:]]
    times = [[one.ready_s, one.begin_s, one.end_s, one.begin_s - one.ready_s] for one in played]
    unit, flat = times_column([one_s for row in times for one_s in row])
    cells = [flat[4 * place : 4 * place + 4] for place in range(len(played))]
    rows = [
        [f"{place + 1:,}", bytes_of(sizes[place]), *cells[place]]
        if place >= 0 else ["\u2026", *[""] * 5]
        for place in shown
    ]  # fmt: skip

    def plots() -> list[Drawing]:
        from paceline_service.commands.overlap_plots import timeline_plot

        return [timeline_plot(asked, played)]

    late = frozenset(
        row for row, place in enumerate(shown)
        if place >= 0 and played[place].end_s > asked.model.backward_s
    )  # fmt: skip
    heads = ["bucket", "bytes", f"full\n{unit}", f"begins\n{unit}", f"ends\n{unit}",
             f"waits for\nthe link {unit}"]  # fmt: skip
    return Table(title="", heads=heads, rows=rows, marked=late, plots=plots)


def _meaning(asked: Asked, sizes: list[int], played: list[BucketTime]) -> list[str]:
    model, end_s = asked.model, played[-1].end_s
    exposed_s = end_s - model.backward_s
    spent_s = sum(one.end_s - one.begin_s for one in played)
    queued = sum(map(_waits, played))
    count = counted(len(sizes), "bucket")
    said = [
        f"{count}: the backward pass is over at {duration_of(model.backward_s)} and the last "
        f"gradient is reduced at {duration_of(end_s)}, against "
        f"{duration_of(model.naive_s)} in one piece after it. {duration_of(exposed_s)} is exposed, "
        f"{format_ratio(max(1 - exposed_s / spent_s, 0.0))} of {duration_of(spent_s)} of "
        "communication is hidden."
    ]
    if len(played) == 1:
        said.append(
            "One bucket is full when the backward pass is over, so nothing is hidden. Smaller ones "
            "(--bucket) begin before."
        )
    elif 2 * queued > len(played):
        larger = len(sizes) * model.latency_s > model.transfer_s
        said.append(
            f"{counted(queued, 'bucket waits', 'buckets wait')} for the one before: the link is "
            "what is slow, and smaller buckets would hardly help."
            + (" Larger ones would: latency is most of what the link does." if larger else "")
        )
    else:
        before = ", and what the one before it still takes" if _waits(played[-1]) else ""
        said.append(
            f"The link rests between buckets; what is exposed is the last bucket{before}. Its "
            "gradients come last; a smaller one would be less."
        )
    return said


def _waits(one: BucketTime) -> bool:
    return one.begin_s > one.ready_s * (1 + 1e-9)


def _values(asked: Asked, sizes: list[int], played: list[BucketTime]) -> dict[str, object]:
    return {
        "naive_s": asked.model.naive_s, "end_s": played[-1].end_s,
        "exposed_s": played[-1].end_s - asked.model.backward_s,
        "buckets": [
            {"bytes": size, "ready_s": one.ready_s, "begin_s": one.begin_s, "end_s": one.end_s}
            for size, one in zip(sizes, played, strict=True)
        ],
    }  # fmt: skip
