"""The arguments that ``plan step`` and ``plan memory`` share: the model and its numbers."""

from __future__ import annotations

from typing import Annotated

import typer

from paceline.counted import counted
from paceline.errors import ConfigError
from paceline_service.analysis.costs import units
from paceline_service.analysis.costs.precision import PRECISIONS, Precision
from paceline_service.analysis.costs.transformer import Transformer, transformer_of
from paceline_service.analysis.costs.words import count_of

Parameters = Annotated[
    str | None,
    typer.Option(metavar="P", help="Of the model: 7B, 66M; 7B if no shape is given either."),
]
Layers = Annotated[str | None, typer.Option(metavar="L", help="Layers; else supposed from P.")]
Hidden = Annotated[str | None, typer.Option(metavar="H", help="Width; else supposed from P.")]
Heads = Annotated[str | None, typer.Option(metavar="A", help="Attention heads; one per 128 of H.")]
Sequence = Annotated[str, typer.Option(metavar="S", help="Tokens in a sample.")]
Vocabulary = Annotated[str, typer.Option(metavar="V", help="Entries of the vocabulary.")]
PrecisionName = Annotated[
    str,
    typer.Option("--precision", metavar="NAME",
                 help="Bytes per parameter: zero (16), megatron (18), fsdp (16, weights in fp32), "
                 "fp32 (16)."),
]  # fmt: skip
MicroBatch = Annotated[str, typer.Option(metavar="N", help="Samples a rank works on at once.")]
Batch = Annotated[
    str | None,
    typer.Option(metavar="N", help="Samples of a step, all ranks together; some per rank."),
]
DeviceMemory = Annotated[str, typer.Option(metavar="BYTES", help="Of a device: 80GB.")]
RanksPerNode = Annotated[str, typer.Option(metavar="G", help="Devices in a node.")]
_PARAMETERS = "7B"


def asked_model(
    parameters: str | None, layers: str | None, hidden: str | None, heads: str | None,
    sequence: str, vocabulary: str,
) -> Transformer:  # fmt: skip
    """Return the model that the arguments tell.

    Raises:
        ConfigError: they do not tell one.
    """
    if parameters is None and (layers is None or hidden is None):
        parameters = _PARAMETERS
    return transformer_of(
        parameters=_count(parameters, "--parameters", "parameters"),
        layers=_count(layers, "--layers", "layers"),
        hidden=_count(hidden, "--hidden", "units"),
        heads=_count(heads, "--heads", "heads"),
        sequence=units.parse_count(sequence, "--sequence", unit="tokens"),
        vocabulary=units.parse_count(vocabulary, "--vocabulary", unit="entries"),
    )


def asked_precision(name: str) -> Precision:
    """Return a recipe by its name.

    Raises:
        ConfigError: there is none of that name.
    """
    if name not in PRECISIONS:
        raise ConfigError(f"--precision is {name!r}: give one of {', '.join(PRECISIONS)}")
    return PRECISIONS[name]


def asked_batch(text: str | None, least: int) -> int:
    """Return the samples of a step; ``least`` where nothing is said."""
    return least if text is None else units.parse_count(text, "--batch", unit="samples")


def model_line(model: Transformer) -> str:
    """Return the model in words."""
    shape = (
        f"{count_of(model.parameters)} parameters in {counted(model.layers, 'layer')} of width "
        f"{model.hidden:,}, {counted(model.heads, 'head')}, samples of "
        f"{counted(model.sequence, 'token')}"
    )
    if model.supposed:
        shape += " (the shape is supposed from the number of parameters; give --layers, --hidden)"
    return shape


def precision_line(precision: Precision) -> str:
    """Return a recipe in words."""
    return (
        f"{precision.state_bytes:g} bytes per parameter ({precision.name}): weight "
        f"{precision.weight_bytes:g}, gradient {precision.gradient_bytes:g}, Adam "
        f"{precision.optimizer_bytes:g}; sent: weight {precision.weight_wire_bytes:g}, gradient "
        f"{precision.gradient_wire_bytes:g}"
    )


def model_input(model: Transformer) -> dict[str, object]:
    """Return the model for JSON."""
    return {
        "parameters": model.parameters, "layers": model.layers, "hidden": model.hidden,
        "heads": model.heads, "sequence_tokens": model.sequence, "vocabulary": model.vocabulary,
        "shape_supposed": model.supposed,
    }  # fmt: skip


def _count(text: str | None, argument: str, unit: str) -> int | None:
    return None if text is None else units.parse_count(text, argument, unit=unit)
