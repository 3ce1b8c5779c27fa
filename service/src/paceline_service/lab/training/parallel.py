"""The three ways to divide the work, and which synchronizations each of them makes in a step.

``ddp`` keeps everything on every rank. ``zero2`` and ``zero3`` divide parameters, gradients and
the optimizer's state over the ranks (FSDP2); ``zero2`` gathers the parameters once a step and
holds them until the backward pass is over, ``zero3`` lets them go after forward.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from paceline_service.lab.plans import Bucket, Call, Plan, fsdp_calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """A model made parallel, and what it was before."""

    strategy: str
    model: nn.Module
    names: dict[int, str]
    """Of the parameters of the whole model, by ``id``."""

    def plan(self) -> dict[str, Any]:
        """Return what is synchronized in a step, as it is now."""
        plan = self._of_ddp() if self.strategy == "ddp" else self._of_fsdp()
        return asdict(plan)

    def _of_ddp(self) -> Plan:
        assert isinstance(self.model, DistributedDataParallel)
        # The one place where torch tells its buckets; it fills them with zeros for that.
        made = self.model.reducer._get_zeros_like_grad_buckets()
        buckets = [
            _bucket(number, [(self.names[id(p)], p) for p in bucket.parameters()])
            for number, bucket in enumerate(made)
        ]
        calls = [Call(op="all_reduce", phase="backward", bucket=b.bucket) for b in buckets]
        return Plan(buckets=buckets, calls=calls)

    def _of_fsdp(self) -> Plan:
        units = [("", self.model), *_blocks(self.model)]
        inner = {id(p) for _, block in units[1:] for p in block.parameters()}
        buckets = []
        for number, (prefix, unit) in enumerate(units):
            named = [
                (f"{prefix}{name}", p)
                for name, p in unit.named_parameters()
                if prefix or id(p) not in inner
            ]
            buckets.append(_bucket(number, named))
        return Plan(buckets=buckets, calls=fsdp_calls(len(buckets), self.strategy))


def parallel(model: nn.Module, strategy: str, bucket_bytes: int, device: torch.device) -> Parallel:
    """Return ``model`` under ``strategy``; ``bucket_bytes`` is for DDP."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if strategy == "ddp":
        ddp = DistributedDataParallel(
            model.to(device), bucket_cap_mb=bucket_bytes / 2**20, gradient_as_bucket_view=True
        )
        return Parallel(strategy=strategy, model=ddp, names=names)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise SystemExit(
            f"torch {torch.__version__} has no FSDP2: zero2 and zero3 need torch 2.6; ddp works"
        ) from None
    model = model.to(device)
    keep = strategy == "zero2"
    for _, block in _blocks(model):
        fully_shard(block, reshard_after_forward=not keep)
    fully_shard(model, reshard_after_forward=not keep)
    return Parallel(strategy=strategy, model=model, names={})


def held_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, int]:
    """Return what this rank holds between steps: parameters, gradients, optimizer's state."""
    states = [t for state in optimizer.state.values() for t in state.values()]
    return {
        "parameters": sum(_local_bytes(p) for p in model.parameters()),
        "gradients": sum(_local_bytes(p.grad) for p in model.parameters() if p.grad is not None),
        "optimizer": sum(_local_bytes(t) for t in states if isinstance(t, torch.Tensor)),
    }


def _blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    blocks = model.get_submodule("blocks").children()
    return [(f"blocks.{number}.", block) for number, block in enumerate(blocks)]


def _bucket(number: int, named: list[tuple[str, Any]]) -> Bucket:
    return Bucket(
        bucket=number,
        names=[name for name, _ in named],
        parameters=sum(p.numel() for _, p in named),
        payload_bytes=sum(p.numel() * p.element_size() for _, p in named),
    )


def _local_bytes(tensor: Any) -> int:
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return int(local.numel() * local.element_size())
