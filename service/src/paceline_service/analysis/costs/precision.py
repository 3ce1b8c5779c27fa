"""Bytes per parameter, kept and sent: the recipes that training frameworks follow.

Source: docs/math/strategies.md, "Bytes per parameter", where they disagree and why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Bytes of each parameter under mixed-precision Adam.

    Attributes:
        name: of the recipe.
        weight_bytes: of the weights that stay where they are.
        gradient_bytes: of its gradient.
        optimizer_bytes: of the optimizer's states, an fp32 copy of the weight included if any.
        weight_wire_bytes: of a weight in an all-gather.
        gradient_wire_bytes: of a gradient in an all-reduce or a reduce-scatter.
    """

    name: str
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    weight_wire_bytes: float
    gradient_wire_bytes: float

    @property
    def state_bytes(self) -> float:
        """All that a parameter takes where nothing is sharded."""
        return self.weight_bytes + self.gradient_bytes + self.optimizer_bytes


PRECISIONS: Mapping[str, Precision] = {
    one.name: one
    for one in (
        Precision(
            name="zero", weight_bytes=2, gradient_bytes=2, optimizer_bytes=12,
            weight_wire_bytes=2, gradient_wire_bytes=2,
        ),
        Precision(
            name="megatron", weight_bytes=2, gradient_bytes=4, optimizer_bytes=12,
            weight_wire_bytes=2, gradient_wire_bytes=4,
        ),
        Precision(
            name="fsdp", weight_bytes=4, gradient_bytes=4, optimizer_bytes=8,
            weight_wire_bytes=2, gradient_wire_bytes=4,
        ),
        Precision(
            name="fp32", weight_bytes=4, gradient_bytes=4, optimizer_bytes=8,
            weight_wire_bytes=4, gradient_wire_bytes=4,
        ),
    )
}  # fmt: skip
"""``zero``: the ZeRO paper's 16; ``megatron``: gradients kept and reduced in fp32, 18; ``fsdp``:
weights kept in fp32 and gathered in bf16, 16; ``fp32``: no mixed precision, 16."""
