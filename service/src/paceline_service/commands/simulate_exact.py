"""``paceline simulate exact``: that K ranks train as one machine does, and what breaks it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from paceline.counted import counted
from paceline_service.commands.answer import SIMULATE, Answer, FormatOption, Table, give
from paceline_service.commands.figures import HtmlOption, PngOption
from paceline_service.commands.output import Format

if TYPE_CHECKING:
    from paceline_service.analysis.costs.exactness import Exactness
    from paceline_service.export.plots import Drawing

_LEAST_DRAWN = 1e-17
"""A deviation of 0 is drawn as this: on a scale of powers of ten there is no 0."""


def simulate_exact(
    ranks: Annotated[int, typer.Option(metavar="K", help="At least 2.")] = 8,
    batch_per_rank: Annotated[
        int, typer.Option(metavar="B", help="Examples that a rank takes a step.")
    ] = 64,
    steps: Annotated[int, typer.Option(metavar="S", help="Steps of SGD.")] = 30,
    dimensions: Annotated[int, typer.Option(metavar="D", help="Weights that are trained.")] = 20,
    examples: Annotated[int, typer.Option(metavar="N", help="Examples there are.")] = 4096,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the examples and their order.")] = 7,
    output_format: FormatOption = Format.TEXT,
    html: HtmlOption = None,
    png: PngOption = None,
) -> int:
    """Train a regression on K ranks and on one machine, and compare the weights.

    The same batches, divided equally, unequally, and among changing ranks. What is told is the
    largest difference of any weight at any step (docs/math/replicas.md).
    """
    from paceline_service.analysis.costs.exactness import demonstrate  # numpy, for this answer only

    asked = {
        "ranks": ranks, "batch_per_rank": batch_per_rank, "steps": steps,
        "dimensions": dimensions, "examples": examples, "seed": seed,
    }  # fmt: skip
    found = demonstrate(**asked)
    answer = Answer(
        schema=SIMULATE, model="exact",
        title=f"{ranks:,} ranks against one machine: {counted(steps, 'step')} of SGD",
        input=asked,
        given=[f"{ranks:,} ranks with {counted(batch_per_rank, 'example')} each, one machine with "
               f"{ranks * batch_per_rank:,}",
               f"a regression of {dimensions} weights on {examples:,} examples, seed {seed}"],
        values={
            "max_deviation": found.largest, "gradient_bias": found.bias, "loss": list(found.loss),
            "unequal_shares": list(found.shares),
        },
        tables=[_ways(found)],
        meaning=_meaning(found),
    )  # fmt: skip
    return give(answer, output_format, html=html, png=png)


def _words(found: Exactness) -> dict[str, str]:
    shares = f"shares of {found.shares[0]} to {counted(found.shares[-1], 'example')}"
    return {
        "equal": "equal shares",
        "weighted": f"{shares}, weighted by size",
        "naive": f"{shares}, plain mean",
        "elastic": "a rank is drained, then two are added",
    }


def _ways(found: Exactness) -> Table:
    words = _words(found)
    rows = [[words[way], f"{largest:.1e}"] for way, largest in found.largest.items()]

    def plots() -> list[Drawing]:
        from paceline_service.export.plots import Line, plot

        lines = [
            Line(words[way], range(1, len(series) + 1), [max(y, _LEAST_DRAWN) for y in series])
            for way, series in found.by_step.items()
        ]
        return [plot("Deviation from one machine", "step", "largest of any weight", lines,
                     log_y=True)]  # fmt: skip

    return Table(
        title="", heads=["the batch is divided into", "largest deviation\nof any weight"],
        rows=rows, marked=frozenset({list(words).index("naive")}), plots=plots,
    )  # fmt: skip


def _meaning(found: Exactness) -> list[str]:
    first, last = found.loss
    return [
        "Averaging gradients by the number of examples behind them is the SGD of one machine, "
        "however many ranks take part: what differs is the rounding of sums. A plain mean of "
        "unequal shares is another update: an example of a small share counts for more.",
        f"All of them train: the loss went from {first:.3g} to {last:.3g}. Whether the replicas of "
        "a running job still agree is watched with PACELINE_REPLICA_CHECK_STEPS "
        "(docs/replicas.md).",
    ]
