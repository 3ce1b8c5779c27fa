"""``paceline simulate tax``: what one slow rank, and mere chance, cost a job of K ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.commands.answer import SIMULATE, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format
from paceline_service.commands.simulate_noise import noise_input, noise_of, told_noise
from paceline_service.commands.simulate_options import (
    SeedOption,
    factors_of,
    whole_list,
)
from paceline_service.export.units import format_ratio, format_times
from paceline_service.simulate.noise import Noise
from paceline_service.simulate.tax import Tax, taxes

if TYPE_CHECKING:
    from paceline_service.export.plots import Drawing

_MOST_DRAWS = 400_000_000
"""Some seconds of drawing; more says nothing that the closed form does not."""
_MOST_RANKS = 1_000_000
_LEAST_STEPS = 2
_LEAST_RANKS = 2


def simulate_tax(
    ranks: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of ranks K.")
    ] = "2,8,32,128,1024,16384",
    slow: Annotated[
        str, typer.Option(metavar="LIST", help="How many times as long one rank takes.")
    ] = "1,1.5,2,3,5",
    noise: Annotated[
        str,
        typer.Option(
            metavar="LAW",
            help="Spread of every rank's step time, relative: normal:5%, uniform:10%, "
            "lognormal:10%, gamma:50%, exponential:20%, pareto:3 (shape), pause:1%:50%, constant.",
        ),
    ] = "normal:5%",
    steps: Annotated[int, typer.Option(metavar="S", help="Drawn for each K.")] = 1000,
    seed: SeedOption = 7,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Say what a barrier costs K ranks: by drawing step times, and by the closed forms.

    The tax is E[max over the ranks] / mean - 1: how much longer a step is than in perfect balance
    (docs/math/execution.md).
    """
    law = noise_of(noise)
    if not law.relative:
        raise ConfigError(
            f"--noise {noise!r} is a time, and there is no step time here: give a share, as in "
            "normal:5%"
        )
    counts = whole_list(ranks, "--ranks", "ranks", most=_MOST_RANKS)
    if counts[0] < _LEAST_RANKS:
        raise ConfigError("--ranks is 1: a rank alone waits for nobody; give 2 ranks or more")
    count = units.whole(steps, "--steps", "steps", least=_LEAST_STEPS)
    if sum(counts) * count > _MOST_DRAWS:
        raise ConfigError(
            f"--steps {count:,} for {sum(counts):,} ranks in all are {sum(counts) * count:,} "
            f"draws: give at most {_MOST_DRAWS // sum(counts):,} steps"
        )
    found = taxes(law, counts, factors_of(slow), count, seed)
    answer = Answer(
        schema=SIMULATE, model="tax",
        title="The straggler tax: what waiting for the last one costs",
        input={"ranks": counts, "slow": sorted({tax.factor for tax in found}),
               "noise": noise_input(law), "steps": count, "seed": seed},
        given=[f"step times: {told_noise(law)}; one rank takes lambda times as long",
               f"{counted(count, 'step')} drawn for each K, seed {seed}"],
        values={"rows": [_json(tax) for tax in found]},
        tables=[_taxes(found, law), _slowdowns(found)],
        meaning=_meaning(found, law),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _json(tax: Tax) -> dict[str, object]:
    return {
        "ranks": tax.ranks,
        "slow": tax.factor,
        "step": tax.step,
        "step_error": tax.step_error,
        "step_expected": tax.step_expected,
        "balanced": tax.balanced,
        "tax": tax.tax,
        "tax_error": tax.tax_error,
        "tax_expected": tax.tax_expected,
        "slowdown": tax.slowdown,
        "idle_ratio": tax.idle_ratio,
    }


def _taxes(found: list[Tax], law: Noise) -> Table:
    factors = sorted({tax.factor for tax in found})
    rows = []
    for ranks, row in _by_ranks(found).items():
        cells = [f"{_digits(tax.tax)} ({_digits(tax.tax_expected)})" for tax in row]
        rows.append([f"{ranks:,}", *cells, f"{max(_deviation(tax) for tax in row):.1f}"])
    heads = ["ranks K", *(f"lambda {factor:g}\n%" for factor in factors), "off by\nst. errors"]

    def plots() -> list[Drawing]:
        from paceline_service.commands.simulate_tax_plots import tax_plot

        return [tax_plot(found, law)]

    return Table(
        title="Tax: longer than in perfect balance, drawn (and by the closed form)", heads=heads,
        rows=rows, plots=plots,
    )  # fmt: skip


def _slowdowns(found: list[Tax]) -> Table:
    factors = sorted({tax.factor for tax in found})
    rows = [
        [f"{ranks:,}",
         *(f"{format_times(tax.slowdown)}, {format_ratio(tax.idle_ratio)}" for tax in row)]
        for ranks, row in _by_ranks(found).items()
    ]  # fmt: skip
    return Table(
        title="Against the job without a slow rank, and the share of all ranks' time that is idle",
        heads=["ranks K", *(f"lambda {factor:g}" for factor in factors)], rows=rows,
    )  # fmt: skip


def _by_ranks(found: list[Tax]) -> dict[int, list[Tax]]:
    rows: dict[int, list[Tax]] = {}
    for tax in found:
        rows.setdefault(tax.ranks, []).append(tax)
    return rows


def _digits(ratio: float) -> str:
    return f"{ratio * 100:,.1f}" if abs(ratio) >= 0.0995 else f"{ratio * 100:.2f}"


def _percent(ratio: float) -> str:
    return f"{_digits(ratio)} %"


def _deviation(tax: Tax) -> float:
    """Return by how many standard errors drawing and the closed form differ."""
    off = abs(tax.tax - tax.tax_expected)
    return off / tax.tax_error if tax.tax_error > 1e-12 else 0.0


def _meaning(found: list[Tax], law: Noise) -> list[str]:
    rows = _by_ranks(found)
    counts = list(rows)
    said = []
    if (one := rows[counts[-1]][0]).factor == 1 and law.law != "constant":
        least = rows[counts[0]][0]
        chance = f"{_percent(one.tax_expected)} at {counts[-1]:,} ranks"
        if len(counts) > 1:
            chance += f", {_percent(least.tax_expected)} at {counts[0]:,}"
        said.append(
            f"With no slow rank at all, chance alone makes each step longer by {chance}: the "
            "barrier waits for the worst of K draws."
        )
    if (worst := rows[counts[-1]][-1]).factor > 1:
        said.append(
            f"One rank that takes {worst.factor:g} times as long makes a job of {worst.ranks:,} "
            f"ranks {format_times(worst.slowdown)} as long, and "
            f"{format_ratio(worst.idle_ratio)} of all ranks' time is waiting: the more ranks, the "
            "more wait for the same one."
        )
    if law.law == "pause":
        planned = law.probability * law.spread
        said.append(
            f"Pauses that all ranks make at the same time, planned, cost {_percent(planned)} "
            "instead, however many ranks there are."
        )
    return said or ["Ranks that are equally fast wait for nobody: there is no tax."]
