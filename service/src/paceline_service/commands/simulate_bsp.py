"""``paceline simulate bsp``: steps in which every rank waits for the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.words import duration_of, times_column
from paceline_service.commands import simulate_bsp_words as words
from paceline_service.commands.answer import SIMULATE, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.simulate_options import (
    CommunicationOption,
    NoiseOption,
    RanksOption,
    SeedOption,
    check_size,
)
from paceline_service.commands.simulate_recorded import RanksFromOption
from paceline_service.commands.simulate_source import Source, source_of
from paceline_service.export.units import format_ratio
from paceline_service.simulate.bsp import Bsp
from paceline_service.simulate.draws import generator

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

MOST_TOLD_TIMES = 100_000
"""Of compute times in JSON: of more steps times ranks, JSON has a row a step without them."""
_STEPS_SHOWN = 6
_RANKS_IN_COLUMNS = 6
_RANKS_SHOWN = 16
_OF_MORE = 8
_BAR = 24
_SECONDS_FROM_S = 10
"""Totals are told in seconds from here on."""
Json = dict[str, object]


def simulate_bsp(
    ranks: RanksOption = None,
    noise: NoiseOption = None,
    communication: CommunicationOption = None,
    steps: Annotated[
        int | None,
        typer.Option(metavar="S", help="Default 3, or all that --ranks-from has, in their order."),
    ] = None,
    seed: SeedOption = 7,
    ranks_from: RanksFromOption = None,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Simulate steps in which every rank computes, waits for the last one, then communicates.

    Without options: four ranks, one of them slow (docs/math/execution.md). Who waits how long,
    what it costs against perfect balance, and what leaving the slowest rank out would give.
    """
    source = source_of(ranks, noise, communication, ranks_from, in_order=steps is None)
    count = source.recorded_steps or 3 if steps is None else steps
    count = units.whole(count, "--steps", "steps")
    check_size(count, len(source.names))
    run = Bsp(
        compute_s=source.ranks.draw(generator(seed), count),
        communication_s=source.communication_s,
        expected_s=source.ranks.expected_s,
    )
    answer = Answer(
        schema=SIMULATE, model="bsp", title=words.title(run), values=_values(run, source),
        input={**source.input, "steps": count, "seed": seed},
        given=[*source.given, f"{counted(count, 'step')}, seed {seed}"],
        tables=[_steps(run, source), _ranks(run, source), _totals(run, source)],
        meaning=words.meaning(run, source),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _values(run: Bsp, source: Source) -> Json:
    whole = run.compute_s.size <= MOST_TOLD_TIMES
    waits, supersteps, slowest = run.wait_s, run.superstep_s, run.slowest_rank
    rows: list[Json] = []
    for place in range(len(run.compute_s)):
        row: Json = {
            "superstep_s": float(supersteps[place]),
            "slowest_rank": source.names[slowest[place]],
        }
        if whole:
            row |= {"compute_s": run.compute_s[place].tolist(), "wait_s": waits[place].tolist()}
        rows.append(row)
    lasts = words.lasts(run)
    return {
        "wall_clock_s": run.wall_clock_s,
        "balanced_s": run.balanced_s,
        "idle_injected_s": run.idle_injected_s,
        "idle_injected_ratio": run.idle_injected_s / run.wall_clock_s,
        "straggler": source.names[run.straggler],
        "straggler_share": run.straggler_share,
        "without_straggler_s": run.without_straggler_s if len(source.names) > 2 else None,
        "wait_total_s": run.wait_total_s,
        "wait_ratio": run.wait_ratio,
        "communication_ratio": words.communication_ratio(run),
        "measured_step_s": source.measured_step_s,
        "ranks": [
            {
                "rank": name, "compute_s": float(compute), "wait_s": float(wait),
                "expected_compute_s": float(mean), "last_in_steps": int(last),
            }
            for name, compute, wait, mean, last in zip(
                source.names, run.compute_s.sum(axis=0), waits.sum(axis=0), run.expected_s,
                lasts, strict=True,
            )
        ],
        "steps": rows,
    }  # fmt: skip


def _steps(run: Bsp, source: Source) -> Table:
    """Return the first steps: of a few ranks each with compute and wait, else the superstep."""
    shown = min(_STEPS_SHOWN, len(run.compute_s))
    columns = len(source.names) <= _RANKS_IN_COLUMNS
    unit, long = times_column(run.superstep_s[:shown].tolist())
    heads = ["step", f"superstep\n{unit}", "last in"]
    waits = run.wait_s
    cells: list[list[str]] = [[] for _ in range(shown)]
    if columns:
        scale = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[unit]
        heads += [f"{name}\nwork + wait" for name in source.labels]
        for step in range(shown):
            pairs = zip(run.compute_s[step], waits[step], strict=True)
            cells[step] = [f"{own * scale:.2f} + {wait * scale:5.2f}" for own, wait in pairs]
    else:
        wait_unit, means = times_column([float(waits[step].mean()) for step in range(shown)])
        heads += [f"ranks wait\non average\n{wait_unit}"]
        cells = [[mean] for mean in means]
    rows = [
        [f"{step}", long[step], source.labels[run.slowest_rank[step]], *cells[step]]
        for step in range(shown)
    ]
    more = len(run.compute_s) - shown
    title = f"The first {shown} of {counted(len(run.compute_s), 'step')}" if more else "Every step"

    def plots() -> list[Drawing]:
        from paceline_service.commands.simulate_bsp_plots import step_plots

        return step_plots(run, source)

    return Table(title=title, heads=heads, rows=rows, plots=plots)


def _ranks(run: Bsp, source: Source) -> Table:
    """Return who works and who waits, those that are last most often if there are many."""
    lasts, count = words.lasts(run), len(run.compute_s)
    order = list(range(len(source.names)))
    which = "each rank"
    if len(order) > _RANKS_SHOWN:
        which = f"the {_OF_MORE} slowest of {len(order):,} ranks"
        order = sorted(order, key=lambda place: (-run.expected_s[place], place))[:_OF_MORE]
    own, wait = run.compute_s.mean(axis=0), run.wait_s.mean(axis=0)
    unit, works = times_column([float(own[place]) for place in order])
    wait_unit, waited = times_column([float(wait[place]) for place in order])
    step_s = run.wall_clock_s / count
    rows = [
        [
            source.labels[place], _bar(float(own[place]), float(wait[place]), step_s), works[at],
            waited[at], format_ratio(float(wait[place]) / step_s),
            f"{lasts[place]:,}",
        ]
        for at, place in enumerate(order)
    ]  # fmt: skip
    heads = [
        "rank",
        "# work  . wait  = comm".ljust(_BAR),
        f"work\n{unit}",
        f"waits\n{wait_unit}",
        "of step",
        "steps\nlast in",
    ]
    marked = frozenset(at for at, place in enumerate(order) if words.stands_out(run, place))
    title = f"A mean step of {which}"

    def plots() -> list[Drawing]:
        from paceline_service.commands.simulate_bsp_plots import rank_bars

        return [rank_bars(run, source, order)]

    return Table(
        title=title, heads=heads, rows=rows, marked=marked, plots=plots, text_only=frozenset({1})
    )


def _totals(run: Bsp, source: Source) -> Table:
    count, label = len(run.compute_s), source.labels[run.straggler]
    even = f"{duration_of(float(run.expected_s.mean()))} + {duration_of(run.communication_s)}"
    idle = format_ratio(run.idle_injected_s / run.wall_clock_s)
    unit = "s" if run.wall_clock_s >= _SECONDS_FROM_S else "ms"
    rows = [
        [f"wall-clock of {counted(count, 'superstep')}", _told(run.wall_clock_s, unit)],
        [f"in perfect balance, {count:,} x ({even})", _told(run.balanced_s, unit)],
        [f"idle injected, {idle} of the wall-clock", _told(run.idle_injected_s, unit)],
        [f"straggler's share: what {label} has of all work "
         f"({format_ratio(1 / len(source.names))} in balance)",
         _share(run.straggler_share)],
        [f"waiting of all ranks, {format_ratio(run.wait_ratio)} of their time",
         _told(run.wait_total_s, unit)],
    ]  # fmt: skip
    if source.measured_step_s is not None:
        rows += [
            ["a step as measured", duration_of(source.measured_step_s)],
            ["a step as simulated", duration_of(run.wall_clock_s / count)],
        ]
    return Table(title="Totals", heads=["all steps together", ""], rows=rows)


def _told(seconds: float, unit: str) -> str:
    if seconds >= 7200:
        return duration_of(seconds)
    return f"{seconds * (1e3 if unit == 'ms' else 1):,.2f} {unit}"


def _share(ratio: float) -> str:
    return f"{ratio * 100:.1f} %" if ratio >= 0.01 else format_ratio(ratio)


def _bar(own_s: float, wait_s: float, step_s: float) -> str:
    work, barrier = round(_BAR * own_s / step_s), round(_BAR * (own_s + wait_s) / step_s)
    return "#" * work + "." * (barrier - work) + "=" * (_BAR - barrier)
