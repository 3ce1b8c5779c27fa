"""What a rank sends in a step under each strategy, and in which group.

Sources and assumptions: docs/math/strategies.md, "What is sent". Bytes are those that leave a rank.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from paceline_service.analysis.costs.alpha_beta import Machine
from paceline_service.analysis.costs.collectives import least_sent_ratio
from paceline_service.analysis.costs.precision import Precision
from paceline_service.analysis.costs.strategies import Layout, Recompute, Strategy
from paceline_service.analysis.costs.transformer import Transformer


class Operation(str, Enum):
    """What a rank takes part in."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    SEND = "send"


class Dimension(str, Enum):
    """Between which ranks."""

    DATA = "data"
    SHARD = "shard"
    REPLICATE = "replicate"
    TENSOR = "tensor"
    CONTEXT = "context"
    PIPELINE = "pipeline"


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that talk to each other.

    Attributes:
        dimension: of the layout.
        members: ranks in it.
        stride: global ranks between neighbours.
    """

    dimension: Dimension
    members: int
    stride: int

    def near(self, ranks_per_node: int) -> int:
        """Return how many members share a node; a number that divides the group."""
        near = min(max(ranks_per_node // self.stride, 1), self.members)
        return math.gcd(near, self.members)

    def between_nodes_ratio(self, ranks_per_node: int) -> float:
        """Return the share of what its ring sends that leaves a node."""
        near = self.near(ranks_per_node)
        return 0.0 if near == self.members else 1 / near

    def on(self, machine: Machine) -> Machine:
        """Return the group as a machine: how many of its members share a node, and its links."""
        near = self.near(machine.ranks_per_node)
        return Machine(
            ranks=self.members, link=machine.link, ranks_per_node=near,
            inside=machine.local_link if near > 1 else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Traffic:
    """Operations of one kind in a step.

    Attributes:
        group: who takes part.
        what: is sent, in words.
        operation: all_reduce, all_gather, reduce_scatter or send.
        count: operations per step.
        payload_bytes: of one: the whole buffer, as nccl-tests count; of a send the message.
    """

    group: Group
    what: str
    operation: Operation
    count: float
    payload_bytes: float

    @property
    def sent_bytes(self) -> float:
        """Bytes that leave the rank in a step."""
        if self.operation is Operation.SEND:
            return self.count * self.payload_bytes
        ratio = least_sent_ratio(self.operation.value, self.group.members)
        return self.count * self.payload_bytes * ratio


def data_traffic(layout: Layout, precision: Precision, parameters: float) -> list[Traffic]:
    """Return what data-parallel ranks send in a step (eq. 12 to 16).

    Args:
        layout: with the strategy.
        precision: bytes of a gradient and a weight on the wire.
        parameters: of the rank, before sharding.
    """
    gradients = precision.gradient_wire_bytes * parameters
    weights = precision.weight_wire_bytes * parameters
    passes = layout.pipeline.micro_batches
    if layout.strategy is Strategy.HYBRID:
        return _hybrid(layout, gradients, weights)
    if layout.replicas == 1:
        return []
    group = Group(Dimension.DATA, layout.replicas, layout.tensor)
    if layout.strategy is Strategy.DDP:
        return [Traffic(group, "gradients", Operation.ALL_REDUCE, 1, gradients)]
    scatters, gathers = {
        Strategy.ZERO1: (1, 1),
        Strategy.ZERO2: (passes, 1),
        Strategy.ZERO3: (passes, 2 * passes),
        Strategy.FSDP: (passes, 2 * passes),
    }[layout.strategy]
    return [
        Traffic(group, "gradients", Operation.REDUCE_SCATTER, scatters, gradients),
        Traffic(group, "parameters", Operation.ALL_GATHER, gathers, weights),
    ]


def _hybrid(layout: Layout, gradients: float, weights: float) -> list[Traffic]:
    """Return the traffic inside the ranks of one copy, and between copies."""
    passes, shard = layout.pipeline.micro_batches, layout.shards
    copies = layout.replicas // shard
    one_copy = Group(Dimension.SHARD, shard, layout.tensor)
    alike = Group(Dimension.REPLICATE, copies, layout.tensor * shard)
    found = []
    if shard > 1:
        found += [
            Traffic(one_copy, "gradients", Operation.REDUCE_SCATTER, passes, gradients),
            Traffic(one_copy, "parameters", Operation.ALL_GATHER, 2 * passes, weights),
        ]
    if copies > 1:
        shared = gradients / shard
        found.append(Traffic(alike, "gradients", Operation.ALL_REDUCE, passes, shared))
    return found


def model_traffic(
    layout: Layout, model: Transformer, micro_batch: int, recompute: Recompute
) -> list[Traffic]:
    """Return what tensor, context and pipeline ranks send in a step (eq. 17 to 19).

    Args:
        layout: sizes of the groups.
        model: the transformer.
        micro_batch: samples of a micro-batch.
        recompute: with ``full`` the forward pass's operations happen once more.
    """
    pipeline, tensor = layout.pipeline, layout.tensor
    visits = layout.stage_layers(model) * pipeline.micro_batches
    again = 1 if recompute is Recompute.FULL else 0
    hidden_bytes = 2.0 * micro_batch * model.sequence / layout.context * model.hidden
    found = []
    if tensor > 1:
        group = Group(Dimension.TENSOR, tensor, 1)
        reduces = (4 + 2 * again) * visits
        found.append(Traffic(group, "activations", Operation.ALL_REDUCE, reduces, hidden_bytes))
    if layout.context > 1:
        group = Group(Dimension.CONTEXT, layout.context, tensor)
        sends = (3 + again) * visits * (layout.context - 1)
        found.append(
            Traffic(group, "keys and values", Operation.SEND, sends, 2 * hidden_bytes / tensor)
        )
    if pipeline.stages > 1:
        group = Group(Dimension.PIPELINE, pipeline.stages, tensor * layout.replicas)
        split = tensor if layout.sequence_parallel else 1
        sends = 2 * pipeline.hops * pipeline.micro_batches
        found.append(Traffic(group, "activations", Operation.SEND, sends, hidden_bytes / split))
    return found
