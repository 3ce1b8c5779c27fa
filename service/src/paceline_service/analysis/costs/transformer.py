"""A transformer as the cost models see it: parameters, shape, operations per token.

Sources and assumptions: docs/math/strategies.md, "The model".
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline_service.analysis.costs.units import whole

_WIDTH_PER_LAYER = 128
"""Hidden size over layers of GPT-3 175B (12288 / 96) and LLaMA 7B and 13B (4096 / 32)."""
_HEAD_WIDTH = 128
"""Hidden size per head of the same models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transformer:
    """A decoder of equal layers.

    Attributes:
        parameters: all of them, embeddings included.
        layers: of the whole model.
        hidden: width h.
        heads: attention heads a.
        sequence: tokens in a sample, s.
        vocabulary: entries v.
        supposed: the shape follows from the number of parameters and was not given.
    """

    parameters: int
    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    supposed: bool = False

    @property
    def parameter_flops_per_token(self) -> float:
        """Forward and backward through the weights: 6 P (eq. 1)."""
        return 6.0 * self.parameters

    @property
    def attention_flops_per_token(self) -> float:
        """Forward and backward of the attention products, 12 L h s, no mask counted (eq. 1)."""
        return 12.0 * self.layers * self.hidden * self.sequence

    @property
    def flops_per_token(self) -> float:
        """Floating-point operations of forward and backward, nothing recomputed (eq. 1)."""
        return self.parameter_flops_per_token + self.attention_flops_per_token


def transformer_of(
    *,
    parameters: int | None = None,
    layers: int | None = None,
    hidden: int | None = None,
    heads: int | None = None,
    sequence: int = 2048,
    vocabulary: int = 32000,
) -> Transformer:
    """Return the model that some of its figures tell; the others follow by eq. 2.

    Args:
        parameters: None where the shape tells; else it stands as given.
        layers: None where the parameters tell.
        hidden: None where the parameters tell.
        heads: None for one per 128 of the width.
        sequence: tokens in a sample.
        vocabulary: entries.

    Raises:
        ConfigError: neither parameters nor layers and hidden are given, or they cannot be.
    """
    whole(sequence, "--sequence", "tokens")
    whole(vocabulary, "--vocabulary", "entries")
    supposed = layers is None or hidden is None
    if supposed and parameters is None:
        raise ConfigError(
            "the model has no size: give --parameters, such as 7B, or --layers and --hidden"
        )
    if parameters is not None:
        whole(parameters, "--parameters", "parameters")
        layers, hidden = _shape_of(parameters, layers, hidden)
    assert layers is not None
    assert hidden is not None
    whole(layers, "--layers", "layers")
    whole(hidden, "--hidden", "units")
    heads = max(hidden // _HEAD_WIDTH, 1) if heads is None else whole(heads, "--heads", "heads")
    if heads > hidden:
        raise ConfigError(f"--heads is {heads}, more than --hidden, {hidden}: give fewer")
    if parameters is None:
        parameters = parameters_of(layers, hidden, sequence, vocabulary)
    return Transformer(
        parameters=parameters, layers=layers, hidden=hidden, heads=heads, sequence=sequence,
        vocabulary=vocabulary, supposed=supposed,
    )  # fmt: skip


def parameters_of(layers: int, hidden: int, sequence: int, vocabulary: int) -> int:
    """Return the parameters of a GPT of this shape, biases and positions included (eq. 2)."""
    return layers * (12 * hidden * hidden + 13 * hidden) + (vocabulary + sequence) * hidden


def _shape_of(parameters: int, layers: int | None, hidden: int | None) -> tuple[int, int]:
    """Return layers and hidden of a model with P = 12 L h^2 whose width is 128 per layer."""
    if layers is None and hidden is None:
        layers = max(round((parameters / (12 * _WIDTH_PER_LAYER**2)) ** (1 / 3)), 1)
    if layers is None:
        assert hidden is not None
        layers = max(round(parameters / (12 * whole(hidden, "--hidden", "units") ** 2)), 1)
    if hidden is None:
        exact = (parameters / (12 * whole(layers, "--layers", "layers"))) ** 0.5
        narrow = max(round(exact), 1) if exact < 64 else 64
        hidden = max(round(exact / _HEAD_WIDTH) * _HEAD_WIDTH, narrow)
    return layers, hidden
