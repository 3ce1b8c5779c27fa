"""Layouts to compare: the strategies that people choose among, and all that could be."""

from __future__ import annotations

from collections.abc import Iterator

from paceline_service.analysis.costs.pipeline import Pipeline
from paceline_service.analysis.costs.strategies import Layout, Strategy
from paceline_service.analysis.costs.transformer import Transformer

_MOST_STAGES = _MOST_TENSOR = 64


def usual_layouts(ranks: int, per_node: int, model: Transformer, batch: int, micro_batch: int) -> (
    list[tuple[str, Layout]]
):  # fmt: skip
    """Return the strategies by name, each over all ranks.

    Args:
        ranks: of the job.
        per_node: ranks of a node: the size of tensor and hybrid-shard groups.
        model: what cannot be cut so is left out.
        batch: samples of a step.
        micro_batch: samples of a micro-batch.
    """
    named: list[tuple[str, Strategy, int, int]] = [
        ("DDP", Strategy.DDP, 1, 1),
        ("ZeRO-1", Strategy.ZERO1, 1, 1),
        ("ZeRO-2", Strategy.ZERO2, 1, 1),
        ("ZeRO-3, FSDP full shard", Strategy.FSDP, 1, 1),
        ("FSDP hybrid shard", Strategy.HYBRID, 1, 1),
        ("tensor", Strategy.DDP, per_node, 1),
        ("pipeline", Strategy.DDP, 1, per_node),
        ("tensor + ZeRO-1", Strategy.ZERO1, per_node, 1),
        ("tensor x pipeline", Strategy.DDP, per_node, _stages(ranks, per_node)),
        ("tensor x pipeline + ZeRO-1", Strategy.ZERO1, per_node, _stages(ranks, per_node)),
    ]
    found: list[tuple[str, Layout]] = []
    for name, strategy, tensor, stages in named:
        if name != "DDP" and tensor * stages == 1 and ranks == 1:
            continue
        shard = per_node if strategy is Strategy.HYBRID else None
        layout = layout_for(
            ranks, model, batch, micro_batch, strategy=strategy, tensor=tensor, stages=stages,
            shard=shard,
        )  # fmt: skip
        if layout is None or any(layout == other for _, other in found):
            continue
        found.append((_with_sizes(name, layout), layout))
    return found


def every_layout(
    ranks: int, per_node: int, model: Transformer, batch: int, micro_batch: int
) -> Iterator[Layout]:
    """Yield all layouts: tensor within a node, stages that divide layers, each strategy."""
    for tensor in _divisors(per_node, _MOST_TENSOR):
        for stages in _divisors(model.layers, _MOST_STAGES):
            for strategy in Strategy:
                if strategy is Strategy.ZERO3:
                    continue  # as FSDP
                shard = max(per_node // tensor, 1) if strategy is Strategy.HYBRID else None
                layout = layout_for(
                    ranks, model, batch, micro_batch, strategy=strategy, tensor=tensor,
                    stages=stages, shard=shard,
                )  # fmt: skip
                if layout is not None:
                    yield layout


def layout_for(
    ranks: int, model: Transformer, batch: int, micro_batch: int, *, strategy: Strategy,
    tensor: int, stages: int, shard: int | None,
) -> Layout | None:  # fmt: skip
    """Return a layout, None where ranks, model or batch cannot be divided so."""
    if ranks % (tensor * stages) or stages > model.layers or tensor > model.heads:
        return None
    data = ranks // (tensor * stages)
    if batch % (data * micro_batch):
        return None
    if shard is not None and (data % shard or data == shard or shard == 1):
        return None
    if data == 1 and strategy is not Strategy.DDP:
        return None
    pipeline = Pipeline(stages=stages, micro_batches=batch // (data * micro_batch))
    return Layout(data=data, tensor=tensor, pipeline=pipeline, strategy=strategy, shard=shard)


def layout_words(layout: Layout) -> str:
    """Return a layout as people write it: ``tensor 8 x pipeline 4 x data 16, zero1``."""
    sizes = {
        "tensor": layout.tensor, "context": layout.context, "pipeline": layout.pipeline.stages,
        "data": layout.data,
    }  # fmt: skip
    told = " x ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "one rank"
    if layout.replicas == 1:
        return told
    shard = f" of {layout.shard}" if layout.shard is not None else ""
    return f"{told}, {layout.strategy.value}{shard}"


def _with_sizes(name: str, layout: Layout) -> str:
    if layout.shard is not None:
        return f"{name} of {layout.shard}"
    sizes = [size for size in (layout.tensor, layout.pipeline.stages) if size > 1]
    parts, _, tail = name.partition(" + ")
    words = parts.split(" x ")
    if len(words) == len(sizes):
        parts = " x ".join(f"{word} {size}" for word, size in zip(words, sizes, strict=True))
    return f"{parts} + {tail}" if tail else parts


def _stages(ranks: int, per_node: int) -> int:
    """Return the stages of the combination: as many nodes as fit, at most 8."""
    nodes = max(ranks // per_node, 1)
    return max(_divisors(nodes, 8))


def _divisors(number: int, most: int) -> list[int]:
    return [count for count in range(1, min(number, most) + 1) if number % count == 0]
