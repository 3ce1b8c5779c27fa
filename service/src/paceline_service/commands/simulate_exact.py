"""``paceline simulate exact``: that K ranks train as one machine does, and what breaks it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from paceline_service.commands.output import Format
from paceline_service.commands.run import EXIT_OK

SCHEMA = "paceline.simulate/1"
_INTRO = (
    "{ranks} ranks with {batch_per_rank} examples each against one machine with "
    "{batch}: {steps} steps of SGD\n{dimensions} weights, {examples} examples, seed {seed}"
)
_MEANING = (
    "The loss went from {0:.3g} to {1:.3g}. Averaging gradients by the number of examples behind "
    "them is the SGD\nof one machine, however many ranks take part: what differs is the rounding "
    "of sums. A plain mean of\nunequal shares is another update: an example of a small share "
    "counts for more."
)


def simulate_exact(
    ranks: Annotated[int, typer.Option(help="K, at least 2.")] = 8,
    batch_per_rank: Annotated[int, typer.Option(help="b: examples a rank takes a step.")] = 64,
    steps: Annotated[int, typer.Option(help="Steps of SGD.")] = 30,
    dimensions: Annotated[int, typer.Option(help="d: weights that are trained.")] = 20,
    examples: Annotated[int, typer.Option(help="N: examples there are.")] = 4096,
    seed: Annotated[int, typer.Option(help="Of the examples and their order.")] = 7,
    output_format: Annotated[Format, typer.Option("--format", help="text or json.")] = Format.TEXT,
) -> int:
    """Train a regression on K ranks and on one machine, and compare the weights.

    The same batches, divided equally, unequally, and among changing ranks. What is told is the
    largest difference of any weight at any step.
    """
    from paceline_service.analysis.costs.exactness import demonstrate  # numpy, for this answer only

    asked = {
        "ranks": ranks, "batch_per_rank": batch_per_rank, "steps": steps,
        "dimensions": dimensions, "examples": examples, "seed": seed,
    }  # fmt: skip
    found = demonstrate(**asked)
    if output_format is Format.JSON:
        answer = {"schema": SCHEMA, "model": "exact", "input": asked}
        print(json.dumps({**answer, "max_deviation": _deviations(asdict(found)),
                          "gradient_bias": found.bias, "loss": list(found.loss),
                          "unequal_shares": list(found.shares)}, indent=2))  # fmt: skip
        return EXIT_OK
    print(_INTRO.format(**asked, batch=ranks * batch_per_rank), end="\n\n")
    shares = f"{found.shares[0]} to {found.shares[-1]}"
    for what, value in (
        ("equal shares", found.equal),
        (f"shares of {shares}, weighted by size", found.weighted),
        (f"shares of {shares}, plain mean", found.naive),
        ("a rank drained, then two added", found.elastic),
    ):
        print(f"  {what:44} largest deviation {value:.1e}")
    print("\n" + _MEANING.format(*found.loss))
    return EXIT_OK


def _deviations(found: dict[str, float]) -> dict[str, float]:
    return {name: found[name] for name in ("equal", "weighted", "naive", "elastic")}
