"""``paceline simulate ssp``: what relaxing the barrier gains, and what it costs in staleness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from paceline.counted import counted
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.words import digits, times_column
from paceline_service.commands import simulate_ssp_words as words
from paceline_service.commands.answer import SIMULATE, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.simulate_options import (
    CommunicationOption,
    NoiseOption,
    RanksOption,
    SeedOption,
    bounds_of,
    check_size,
    whole_list,
)
from paceline_service.commands.simulate_recorded import RanksFromOption
from paceline_service.commands.simulate_source import Source, source_of
from paceline_service.export.units import format_ratio
from paceline_service.simulate.draws import generator
from paceline_service.simulate.local_steps import LocalRun, local_steps
from paceline_service.simulate.ssp import MOST_TIMES, SspRun, Steps, ssp

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_BOUNDS = "0,1,2,4,8,16,32,inf"
_LOCAL = "1,2,5,10,50,100"
Json = dict[str, object]


def simulate_ssp(
    ranks: RanksOption = None,
    noise: NoiseOption = None,
    communication: CommunicationOption = None,
    steps: Annotated[int, typer.Option(metavar="S", help="Of each rank with a barrier.")] = 300,
    bounds: Annotated[
        str,
        typer.Option(
            metavar="LIST",
            help="How many steps a rank may be ahead of the slowest: 0 is a barrier in every "
            "step, inf is asynchronous.",
        ),
    ] = _BOUNDS,
    local: Annotated[
        str | None,
        typer.Option(
            "--local-steps",
            metavar="LIST",
            help=f"Steps of each rank between two barriers (local SGD, DiLoCo). Default {_LOCAL}.",
        ),
    ] = None,
    seed: SeedOption = 7,
    ranks_from: RanksFromOption = None,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Sweep the bound of stale-synchronous steps, and the length of rounds of local steps.

    The work is the same in every row: as many updates as all ranks make in S steps with a
    barrier, whoever makes them (docs/math/execution.md).
    """
    source = source_of(ranks, noise, communication, ranks_from)
    count = units.whole(steps, "--steps", "steps")
    check_size(count, len(source.names), MOST_TIMES // 2)
    wanted = bounds_of(bounds)
    if local is None:
        lengths = [one for one in map(int, _LOCAL.split(",")) if one <= count]
    else:
        lengths = whole_list(local, "--local-steps", "steps", most=count)
    drawn = Steps(source.ranks, generator(seed))
    runs = [ssp(drawn, source.communication_s, count, bound) for bound in wanted]
    rounds = [local_steps(drawn.rows(count), source.communication_s, one) for one in lengths]
    barrier = runs[0] if wanted[0] == 0 else ssp(drawn, source.communication_s, count, 0)
    answer = Answer(
        schema=SIMULATE, model="ssp",
        title=f"{len(source.names):,} ranks with barriers that are relaxed, or further apart",
        input={**source.input, "steps": count, "seed": seed,
               "bounds": [words.json_bound(bound) for bound in wanted],
               "local_steps": lengths},
        given=[*source.given, f"{count * len(source.names):,} updates in every row, as in "
               f"{counted(count, 'step')} with a barrier; seed {seed}"],
        values={"bounds": [_bound_json(run) for run in runs],
                "local_steps": [_local_json(run) for run in rounds]},
        tables=[_bounds(runs, barrier, drawn, source), _rounds(rounds, count)],
        meaning=words.meaning(runs, barrier, rounds, source),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _bound_json(run: SspRun) -> Json:
    between = run.staleness.updates
    return {
        "bound": words.json_bound(run.bound),
        "wall_clock_s": run.wall_clock_s,
        "every_rank_done_s": run.every_rank_done_s,
        "idle_s": run.idle_s,
        "idle_ratio": run.idle_ratio,
        "updates_of_rank": run.updates.tolist(),
        "staleness_steps": {
            "mean": float(run.staleness.steps.mean()),
            "max": int(run.staleness.steps.max()),
            "histogram": run.staleness.steps_histogram(),
        },
        "staleness_updates": {
            "mean": float(between.mean()),
            "p50": float(np.quantile(between, 0.5)),
            "p95": float(np.quantile(between, 0.95)),
            "max": int(between.max()),
        },
    }


def _local_json(run: LocalRun) -> Json:
    return {
        "steps_per_round": run.steps_per_round,
        "rounds": run.rounds,
        "wall_clock_s": run.wall_clock_s,
        "communication_s": run.communication_s,
        "idle_s": run.idle_s,
        "idle_ratio": run.idle_ratio,
    }


def _bounds(runs: list[SspRun], barrier: SspRun, steps: Steps, source: Source) -> Table:
    unit, walls = times_column([run.wall_clock_s for run in runs])
    idle_unit, idles = times_column([run.idle_s for run in runs])
    heads = [
        "bound s", f"wall-clock\n{unit}", "against\ns = 0", f"idle, all\nranks {idle_unit}",
        "idle", "updates\nof a rank", "lacks steps\nmean (most)", "lacks updates\nmean (95 %)",
    ]  # fmt: skip
    rows = [
        [
            words.told_bound(run.bound), walls[place],
            words.change(run.wall_clock_s, barrier.wall_clock_s), idles[place],
            format_ratio(run.idle_ratio), f"{run.updates.min():,} to {run.updates.max():,}",
            f"{digits(float(run.staleness.steps.mean()))} ({run.staleness.steps.max():,})",
            f"{digits(float(run.staleness.updates.mean()))} "
            f"({np.quantile(run.staleness.updates, 0.95):,.0f})",
        ]
        for place, run in enumerate(runs)
    ]  # fmt: skip

    def plots() -> list[Drawing]:
        from paceline_service.commands.simulate_ssp_plots import bound_plots

        return bound_plots(runs, steps, source)

    return Table(
        title="A rank may be s steps ahead of the slowest", heads=heads, rows=rows, plots=plots,
        sentences=[
            "Lacks steps: how old the oldest step is that an update's parameters lack; never more "
            "than s. Lacks updates: updates of other ranks that were applied while this one "
            "was computed.",
        ],
    )  # fmt: skip


def _rounds(runs: list[LocalRun], count: int) -> Table:
    unit, walls = times_column([run.wall_clock_s for run in runs])
    sent_unit, sent = times_column([run.communication_s for run in runs])
    idle_unit, idles = times_column([run.idle_s for run in runs])
    heads = [
        "steps a round", "rounds", f"wall-clock\n{unit}", "against\na round of "
        f"{runs[0].steps_per_round}", f"communication\n{sent_unit}",
        f"idle, all\nranks {idle_unit}", "idle",
    ]  # fmt: skip
    rows = [
        [
            f"{run.steps_per_round:,}", f"{run.rounds:,}", walls[place],
            words.change(run.wall_clock_s, runs[0].wall_clock_s), sent[place], idles[place],
            format_ratio(run.idle_ratio),
        ]
        for place, run in enumerate(runs)
    ]  # fmt: skip

    def plots() -> list[Drawing]:
        from paceline_service.commands.simulate_ssp_plots import round_plot

        return [round_plot(runs)] if len(runs) > 1 else []

    title = f"Rounds of local steps, one barrier a round, {counted(count, 'step')} a rank"
    return Table(title=title, heads=heads, rows=rows, plots=plots)
