"""What a rank must hold: parameters, gradients, optimizer states, activations.

Sources and assumptions: docs/math/strategies.md, "What is held".
"""

from __future__ import annotations

from dataclasses import dataclass

from paceline_service.analysis.costs.precision import Precision
from paceline_service.analysis.costs.strategies import (
    SHARDED_PARAMETERS,
    Layout,
    Recompute,
    Strategy,
)
from paceline_service.analysis.costs.transformer import Transformer
from paceline_service.analysis.costs.units import whole

_GATHERED_LAYERS = 2
"""One that computes and one that is fetched ahead (FSDP's default)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes of the fullest rank.

    Attributes:
        parameters_bytes: weights.
        gradients_bytes: of them.
        optimizer_bytes: states, and fp32 weights where they are kept apart.
        gathered_bytes: layers gathered for a moment, where parameters are sharded.
        activations_bytes: kept for the backward pass.
    """

    parameters_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    gathered_bytes: float
    activations_bytes: float

    @property
    def states_bytes(self) -> float:
        """Parameters, gradients and optimizer states."""
        return self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> float:
        """All of it."""
        return self.states_bytes + self.gathered_bytes + self.activations_bytes


def memory_of(
    model: Transformer,
    layout: Layout,
    precision: Precision,
    *,
    micro_batch: int = 1,
    recompute: Recompute = Recompute.SELECTIVE,
) -> Memory:
    """Return what the fullest rank holds at the worst moment.

    Args:
        model: the transformer.
        layout: the ranks.
        precision: bytes per parameter.
        micro_batch: samples of a micro-batch.
        recompute: none, selective (as flash attention needs it) or full.

    Raises:
        ConfigError: the model cannot be cut like this.
    """
    layout.split(model.layers, model.heads)
    whole(micro_batch, "--micro-batch", "samples")
    mine, shards = layout.stage_parameters(model), layout.shards
    strategy = layout.strategy
    whole_parameters = strategy not in SHARDED_PARAMETERS
    whole_gradients = strategy in (Strategy.DDP, Strategy.ZERO1)
    whole_optimizer = strategy is Strategy.DDP
    gathered = 0.0
    if not whole_parameters and shards > 1:
        layer = mine / max(layout.stage_layers(model), 1.0)
        gathered = layer * (
            _GATHERED_LAYERS * precision.weight_wire_bytes + precision.gradient_wire_bytes
        )
    return Memory(
        parameters_bytes=precision.weight_bytes * mine / (1 if whole_parameters else shards),
        gradients_bytes=precision.gradient_bytes * mine / (1 if whole_gradients else shards),
        optimizer_bytes=precision.optimizer_bytes * mine / (1 if whole_optimizer else shards),
        gathered_bytes=gathered,
        activations_bytes=activations_bytes(model, layout, micro_batch, recompute),
    )


def layer_activations_bytes(
    model: Transformer, layout: Layout, micro_batch: int, recompute: Recompute
) -> float:
    """Return what a layer keeps of a micro-batch, 2-byte numbers (eq. 5 to 7).

    Args:
        model: s, h and a.
        layout: t, c, and whether what tensor ranks do not share is split too.
        micro_batch: b samples.
        recompute: none, selective or full.
    """
    unit = micro_batch * model.sequence / layout.context * model.hidden
    tensor = layout.tensor
    split = tensor if layout.sequence_parallel else 1
    if recompute is Recompute.FULL:
        return 2.0 * unit / split
    kept = unit * (10.0 / split + 24.0 / tensor)
    if recompute is Recompute.NONE:
        kept += unit * 5.0 * model.heads * model.sequence / (model.hidden * tensor)
    return kept


def activations_bytes(
    model: Transformer, layout: Layout, micro_batch: int, recompute: Recompute
) -> float:
    """Return what the first stage keeps of all micro-batches that are under way (eq. 10).

    With ``full`` one layer's whole activations are added, which are there while it is recomputed;
    without a pipeline the logits, which are there when the backward pass begins.
    """
    unit = micro_batch * model.sequence / layout.context * model.hidden
    split = layout.tensor if layout.sequence_parallel else 1
    held = layout.pipeline.held_micro_batches
    layer = layer_activations_bytes(model, layout, micro_batch, recompute)
    kept = held * (layer * layout.stage_layers(model) + unit / split)
    if recompute is Recompute.FULL:
        kept += layer_activations_bytes(model, layout, micro_batch, Recompute.SELECTIVE)
    if layout.pipeline.stages == 1:
        kept += 4.0 * unit * (1 / split + model.vocabulary / model.hidden / layout.tensor)
    return kept
