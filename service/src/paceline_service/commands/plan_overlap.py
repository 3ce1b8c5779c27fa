"""``paceline plan overlap``: what buckets hide of an all-reduce, and which size is best."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.overlap import BUCKET_BYTES, Overlap
from paceline_service.analysis.costs.overlap_measured import Measured
from paceline_service.analysis.costs.words import bytes_of, duration_of, times_column
from paceline_service.commands.answer import PLAN, Answer, FormatOption, Table, give
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
from paceline_service.commands.overlap_report import read_job
from paceline_service.export.units import format_ratio, format_times

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_TITLE = "Overlap: gradients reduced while the backward pass goes on"
_ROWS = 9
_MOST_UNSIZED = 1024
_NEARLY = 0.01
_LONGER = (
    "The all-reduce is longer than the backward pass: most that overlap can hide is the backward "
    "pass itself. Fewer bytes, more bandwidth or a larger batch are what helps."
)


def plan_overlap(
    backward: Backward = None,
    all_reduce: AllReduce = None,
    gradients: Gradients = None,
    bandwidth: Bandwidth = None,
    ranks: Ranks = None,
    latency: Latency = None,
    launch: Launch = "0us",
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A report on traces, to compare: paceline analyze "
                     "TRACES --format json; - is stdin."),
    ] = None,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:  # fmt: skip
    """Say what of an all-reduce the backward pass hides, in one piece and in buckets.

    Without options: 200 ms of backward and an all-reduce of 60 ms among 8 ranks. The maths is in
    docs/math/overlap.md; `paceline simulate overlap` shows each bucket.
    """
    measured = None
    if report is not None:
        job = read_job(
            report,
            None if backward is None else units.parse_duration_s(backward, "--backward"),
            None if all_reduce is None else units.parse_duration_s(all_reduce, "--all-reduce"),
        )
        measured = job.measured
        backward = f"{measured.backward_s!r}s"
        if gradients is None or bandwidth is None:
            all_reduce = f"{measured.model.all_reduce_s!r}s"
        if job.link is not None and latency is None and ranks is None:
            latency, ranks = f"{job.link.alpha_s!r}s", str(job.link.ranks)
            bandwidth = bandwidth or (f"{job.link.bytes_per_s!r}B/s" if gradients is None else None)
        latency = latency or "0us"
    sized = measured is None or gradients is not None or bandwidth is not None
    asked = asked_overlap(backward, all_reduce, gradients, bandwidth, latency, launch, ranks)
    asked = replace(asked, sized=sized)
    best = asked.model.best_buckets(most=_most(asked))
    counts = _counts(asked, best)
    tables = [_sweep(asked, counts, best)]
    meaning = _meaning(asked, best)
    values = _values(asked, counts, best)
    given = asked.lines()
    if measured is not None:
        tables.insert(0, _compared(measured, asked.model, best))
        meaning[:0] = _job_meaning(measured)
        values["measured"] = _measured_values(measured)
        given[0] = f"from {report}, a step of a mean rank: {given[0]}"
    answer = Answer(
        schema=PLAN, model="overlap", title=_TITLE, input=asked.told(), given=given,
        values=values, tables=tables, meaning=meaning,
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _most(asked: Asked) -> int:
    """Return the number of buckets beyond which they are no buckets: 64 KiB, and 100,000."""
    if not asked.sized:
        return _MOST_UNSIZED
    return max(min(math.ceil(asked.gradient_bytes / 65536), 100_000), 1)


def _counts(asked: Asked, best: int) -> list[int]:
    """Return the numbers of buckets to compare: each four times the last, the best, the usual."""
    counts = {1, best, *([usual_buckets(asked)] if asked.sized else [])}
    counts |= {4**power for power in range(1, _ROWS) if 4**power <= max(8 * best, 64)}
    return sorted(count for count in counts if count <= max(_most(asked), usual_buckets(asked)))


def usual_buckets(asked: Asked) -> int:
    """Return how many buckets of 25 MiB the gradients fill."""
    return max(math.ceil(asked.gradient_bytes / BUCKET_BYTES), 1)


def _sweep(asked: Asked, counts: list[int], best: int) -> Table:
    model = asked.model
    whole = times_column([model.bucketed_s(count) for count in counts])
    shown = times_column([model.exposed_s(count) for count in counts])
    last = times_column([model.residual_s(count) for count in counts])
    rows = []
    for place, count in enumerate(counts):
        usual = {usual_buckets(asked): "25 MiB"} if asked.sized else {}
        names = {**usual, 1: "naive", best: "best"}
        rows.append(
            [
                f"{count:,}", _size(asked, count), whole[1][place],
                shown[1][place], last[1][place], format_ratio(model.hidden_ratio(count)),
                format_times(model.naive_s / model.bucketed_s(count)), names.get(count, ""),
            ]
        )  # fmt: skip

    def plots() -> list[Drawing]:
        from paceline_service.commands.overlap_plots import sweep_plots

        return sweep_plots(asked, best)

    return Table(
        title="Bucket sizes", marked=frozenset({counts.index(best)}), rows=rows, plots=plots,
        heads=[
            "buckets", "of", f"backward and\nall-reduce {whole[0]}", f"exposed\n{shown[0]}",
            f"last bucket\n{last[0]}", "hidden", "against\nnaive", "",
        ],
    )  # fmt: skip


def _size(asked: Asked, count: int) -> str:
    return bytes_of(asked.gradient_bytes / count) if asked.sized else f"1/{count:,}"


def _compared(measured: Measured, model: Overlap, best: int) -> Table:
    count = measured.buckets
    own, ideal = measured.model, model.exposed_s(best)
    most = f"{counted(best, 'bucket')} (best)" if model.latency_s else "tiny buckets, no latency"
    rows = [
        ("in one piece (naive)", measured.transfer_s, "0 %"),
        ("measured, at least", measured.least_exposed_s, format_ratio(measured.hidden_ratio[1])),
        ("measured, at most", measured.most_exposed_s, format_ratio(measured.hidden_ratio[0])),
        (f"model, {counted(count, 'bucket')}", measured.expected_exposed_s,
         format_ratio(own.hidden_ratio(count))),
        (f"model, {most}", ideal, format_ratio(model.hidden_ratio(best))),
    ]  # fmt: skip
    if measured.least_exposed_s == measured.most_exposed_s:
        rows[1:3] = [("measured", *rows[1][1:])]
    unit, shown = times_column([exposed_s for _, exposed_s, _ in rows])
    return Table(
        title="Against the job", heads=["transfer of a step", f"exposed {unit}", "hidden"],
        rows=[[name, text, hidden] for (name, _, hidden), text in zip(rows, shown, strict=True)],
        marked=frozenset(place for place, row in enumerate(rows) if row[0].startswith("measured")),
    )  # fmt: skip


def _meaning(asked: Asked, best: int) -> list[str]:
    model = asked.model
    if best == 1:
        return _in_one_piece(asked)
    naive, least = duration_of(model.naive_s), duration_of(model.bucketed_s(best))
    saved = model.naive_s - model.bucketed_s(best)
    size = f" of {bytes_of(asked.gradient_bytes / best)}" if asked.sized else ""
    said = [
        f"All gradients after the backward pass: {naive}. In {counted(best, 'bucket')}{size} "
        f"beside it: {least}, {duration_of(saved)} less. No schedule takes less than "
        f"{duration_of(model.bound_s)}."
    ]
    if model.transfer_s >= model.backward_s:
        said.append(_LONGER)
    else:
        said.append(_residual(model, best))
    if asked.sized and model.latency_s > 0:
        said.append(_range(asked, best))
    return said


def _in_one_piece(asked: Asked) -> list[str]:
    model = asked.model
    said = [
        f"All gradients in one piece after the backward pass: {duration_of(model.naive_s)}. "
        + (
            "They are too small to be cut into buckets."
            if _most(asked) == 1
            else "Buckets would not help: each costs its latency again, "
            f"{duration_of(model.latency_s)}, and hides less than that."
        )
    ]
    if model.latency_s > model.transfer_s and _most(asked) > 1:
        said.append("Fewer ranks in the ring, or messages that cost less, are what helps.")
    elif model.transfer_s >= model.backward_s:
        said.append(_LONGER)
    usual = usual_buckets(asked)
    if asked.sized and usual > 1:
        more_s = model.bucketed_s(usual) - model.naive_s
        said.append(f"25 MiB, the default of torch's DDP, costs {duration_of(more_s)} more.")
    return said


def _residual(model: Overlap, best: int) -> str:
    last_s, exposed_s = model.residual_s(best), model.exposed_s(best)
    queued = (
        f", and {duration_of(exposed_s - last_s)} for which it waits for the link"
        if exposed_s > 1.01 * last_s
        else ""
    )
    last = (
        f"What cannot be hidden is the last bucket ({duration_of(last_s)}{queued}): its gradients "
        "are there only when the backward pass is over. "
    )
    if model.latency_s == 0:
        return last + (
            "With messages that cost no time the smallest buckets are best; give --latency for "
            "the real optimum."
        )
    return last + (
        "Larger buckets make it longer; smaller ones cost their latency each, "
        f"{duration_of(model.latency_s)}, until the link never rests."
    )


def _range(asked: Asked, best: int) -> str:
    """Return which sizes are nearly as good as the best, and whether 25 MiB is one of them."""
    fewest, most = asked.model.good_buckets(_NEARLY, _most(asked))
    smallest, largest = (asked.gradient_bytes / count for count in (most, fewest))
    usual = usual_buckets(asked)
    more_s = asked.model.bucketed_s(usual) - asked.model.bucketed_s(best)
    torch = (
        "25 MiB, the default of torch's DDP, is among them."
        if fewest <= usual <= most
        else f"25 MiB, the default of torch's DDP, costs {duration_of(more_s)} more."
    )
    return (
        f"Any size from {bytes_of(smallest)} to {bytes_of(largest)} is within "
        f"{format_ratio(_NEARLY)} of the best. {torch} Prefer the middle: much smaller buckets "
        "fall off a cliff, much larger ones only lose a little."
    )


def _job_meaning(measured: Measured) -> list[str]:
    low, high = (format_ratio(hidden) for hidden in measured.hidden_ratio)
    hidden = low if low == high else f"{low} to {high}"
    could = format_ratio(measured.model.hidden_ratio(measured.buckets))
    least_s, most_s = measured.gain_s
    small_s = 0.01 * measured.backward_s
    if most_s <= small_s:
        verdict = "the job hides what its buckets can hide"
    elif least_s <= small_s:
        verdict = f"a step would gain {duration_of(most_s)} at most if they did"
    else:
        verdict = f"a step would gain at least {duration_of(least_s)} if they did"
    said = [
        f"The job hides {hidden} of its transfers behind computation; {measured.buckets:,} equal "
        f"buckets could hide {could}: {verdict}."
    ]
    if measured.wait_s > 0.1 * measured.transfer_s:
        said.append(
            f"A rank also waits {duration_of(measured.wait_s)} a step inside its collectives for "
            "ranks that come late. No bucket size helps against that: see who comes last with "
            "`paceline analyze`."
        )
    return said


def _values(asked: Asked, counts: list[int], best: int) -> dict[str, object]:
    model = asked.model
    size = asked.gradient_bytes if asked.sized else None
    fewest, most = model.good_buckets(_NEARLY, _most(asked))
    return {
        "naive_s": model.naive_s, "bound_s": model.bound_s, "best_s": model.bucketed_s(best),
        "best_buckets": best, "best_bucket_bytes": size and size / best,
        "good_buckets": [fewest, most],
        "rows": [
            {
                "buckets": count, "bucket_bytes": size and size / count,
                "backward_and_all_reduce_s": model.bucketed_s(count),
                "exposed_s": model.exposed_s(count), "last_bucket_s": model.residual_s(count),
                "hidden_ratio": model.hidden_ratio(count),
            }
            for count in counts
        ],
    }  # fmt: skip


def _measured_values(measured: Measured) -> dict[str, object]:
    return {
        **asdict(measured), "hidden_ratio": list(measured.hidden_ratio),
        "expected_exposed_s": measured.expected_exposed_s, "gain_s": list(measured.gain_s),
    }  # fmt: skip
