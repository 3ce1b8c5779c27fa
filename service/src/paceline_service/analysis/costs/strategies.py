"""How training is spread over ranks: groups, and what their members share.

Sources and assumptions: docs/math/strategies.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from paceline.errors import ConfigError
from paceline_service.analysis.costs.pipeline import Pipeline
from paceline_service.analysis.costs.transformer import Transformer
from paceline_service.analysis.costs.units import whole


class Strategy(str, Enum):
    """What data-parallel ranks keep of parameters, gradients and optimizer states."""

    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"
    HYBRID = "hsdp"


SHARDED_PARAMETERS = frozenset({Strategy.ZERO3, Strategy.FSDP, Strategy.HYBRID})
"""Of these no rank keeps all parameters; they are gathered layer by layer."""


class Recompute(str, Enum):
    """What the backward pass computes a second time."""

    NONE = "none"
    SELECTIVE = "selective"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The ranks of a job: tensor x context x data x pipeline, tensor innermost (Megatron's order).

    Attributes:
        data: replicas of the model, d.
        tensor: ranks that share each layer, t.
        context: ranks that share each sequence, c.
        pipeline: stages and micro-batches.
        strategy: what the data x context ranks shard.
        shard: of hsdp, the ranks that hold one copy together.
        sequence_parallel: with tensor, what is between its products is split too.
    """

    data: int = 1
    tensor: int = 1
    context: int = 1
    pipeline: Pipeline = field(default_factory=Pipeline)
    strategy: Strategy = Strategy.DDP
    shard: int | None = None
    sequence_parallel: bool = True

    def __post_init__(self) -> None:
        """Check that the sizes go together.

        Raises:
            ConfigError: they do not.
        """
        whole(self.data, "--data", "replicas")
        whole(self.tensor, "--tensor", "ranks")
        whole(self.context, "--context", "ranks")
        if self.strategy is not Strategy.HYBRID:
            if self.shard is not None:
                raise ConfigError("--shard is for --strategy hsdp, which keeps several copies")
            return
        if self.shard is None:
            raise ConfigError("--strategy hsdp needs --shard, the ranks that hold one copy")
        whole(self.shard, "--shard", "ranks")
        if self.replicas % self.shard:
            raise ConfigError(
                f"--shard is {self.shard}: the {self.replicas} data-parallel ranks are no multiple"
            )

    @property
    def replicas(self) -> int:
        """Ranks with the same parameters, which reduce gradients together: d c."""
        return self.data * self.context

    @property
    def ranks(self) -> int:
        """All of them."""
        return self.replicas * self.tensor * self.pipeline.stages

    @property
    def shards(self) -> int:
        """Ranks over which what is sharded is spread."""
        return self.shard if self.shard is not None else self.replicas

    def split(self, layers: int, heads: int) -> None:
        """Check that a model can be cut like this.

        Raises:
            ConfigError: there are not enough layers or heads.
        """
        pieces = self.pipeline.stages * self.pipeline.virtual_stages
        if pieces > layers:
            raise ConfigError(
                f"--pipeline {self.pipeline.stages} x --virtual-stages "
                f"{self.pipeline.virtual_stages} is more than the {layers} layers: give fewer"
            )
        if self.tensor > heads:
            raise ConfigError(
                f"--tensor is {self.tensor}, more than the {heads} attention heads: give fewer"
            )

    def stage_layers(self, model: Transformer) -> float:
        """Layers of a stage; a mean where they do not divide."""
        return model.layers / self.pipeline.stages

    def stage_parameters(self, model: Transformer) -> float:
        """Parameters of the fullest rank: its layers and the embedding, over t (eq. 3)."""
        embedding = min(model.vocabulary * model.hidden, model.parameters)
        blocks = model.parameters - embedding
        return (blocks / self.pipeline.stages + embedding) / self.tensor
