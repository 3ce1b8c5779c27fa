"""What somebody says of the work of a step, for ``analyze`` and ``report``: FLOP, or a model."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Annotated, Any

import typer

from paceline.errors import InputError

FlopsOption = Annotated[
    str | None, typer.Option(metavar="FLOP", help="FLOP of a step of the whole job: 88e15.")
]
ParametersOption = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Instead of them, with tokens: a step is 6 P b."),
]
TokensOption = Annotated[str | None, typer.Option(metavar="COUNT", help="Of the whole job: 4M.")]


def flops_of(
    flops_per_step: str | None, parameters: str | None, tokens_per_step: str | None
) -> float | None:
    """Return the FLOP of a step of the whole job, None where nobody says them.

    Raises:
        InputError: they contradict each other, or one of two is missing.
    """
    if flops_per_step is None and parameters is None and tokens_per_step is None:
        return None
    from paceline_service.analysis.costs.calibrate_flops import flops_of_model
    from paceline_service.analysis.costs.units import parse_count

    if flops_per_step is not None and parameters is None and tokens_per_step is None:
        return parse_count(flops_per_step, "--flops-per-step", unit="FLOP")
    if flops_per_step is not None or parameters is None or tokens_per_step is None:
        raise InputError(
            "give --flops-per-step, or --parameters and --tokens-per-step, which make 6 P b"
        )
    return flops_of_model(
        parse_count(parameters, "--parameters", unit="parameters"),
        parse_count(tokens_per_step, "--tokens-per-step", unit="tokens"),
    )


def tell_flops(report: MutableMapping[str, Any], flops_per_step: float | None) -> None:
    """Put into ``report`` the FLOP/s that a rank reaches, where both sides are known."""
    if flops_per_step is not None and report.get("calibration"):
        from paceline_service.analysis.costs.calibrate_flops import with_flops

        size = report["job"]["world_size"]
        report["calibration"] = with_flops(report["calibration"], size, flops_per_step)
