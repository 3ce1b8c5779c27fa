"""What a rank does in one step, without a pipeline: data, tensor, expert parallel, sharded."""

from __future__ import annotations

import numpy as np

from paceline.vocabulary import Op, Phase
from paceline_service.bench.detect.simulate.engine import Engine

BUCKET_SHARES = (0.5, 1.0, 1.5)
"""Buckets differ in size, so that the cost of a byte can be told from that of a call."""


def begin_step(engine: Engine) -> None:
    """Host gap and input."""
    ranks = engine.layout.ranks
    engine.compute(Phase.HOST, ranks)
    with engine.phase(Phase.INPUT, ranks):
        engine.compute(Phase.INPUT, ranks)


def end_step(engine: Engine) -> None:
    """The optimizer; where parameters are sharded over data-parallel groups, they gather."""
    ranks = engine.layout.ranks
    with engine.phase(Phase.OPTIMIZER, ranks):
        engine.compute(Phase.OPTIMIZER, ranks)


def flat_step(engine: Engine) -> None:
    """One step of a job without pipeline stages."""
    begin_step(engine)
    _forward(engine)
    _backward(engine)
    end_step(engine)


def _forward(engine: Engine) -> None:
    """Sharded layers gather their parameters ahead; tensor and expert parallel ones wait."""
    ranks, layers = engine.layout.ranks, engine.spec.layers
    sharded = "shard" in engine.groups
    with engine.phase(Phase.FORWARD, ranks):
        for _ in range(layers):
            if sharded:
                engine.blocking("shard", Op.ALL_GATHER)
            engine.blocking("ep", Op.ALL_TO_ALL)
            engine.compute(Phase.FORWARD, ranks, layers)
            engine.blocking("ep", Op.ALL_TO_ALL)
            engine.blocking("tp", Op.ALL_REDUCE)


def _backward(engine: Engine) -> None:
    """Gradients are reduced bucket by bucket while backward goes on; its end waits for them."""
    ranks, spec = engine.layout.ranks, engine.spec
    parts = max(spec.layers, spec.buckets)
    inner = [name for name in ("ep", "tp", "shard") if name in engine.groups]
    with engine.phase(Phase.BACKWARD, ranks):
        for part in range(parts):
            if "shard" in inner:
                engine.blocking("shard", Op.ALL_GATHER)
            if "ep" in inner:
                engine.blocking("ep", Op.ALL_TO_ALL)
            engine.compute(Phase.BACKWARD, ranks, parts)
            if "tp" in inner:
                engine.blocking("tp", Op.ALL_REDUCE)
            if "shard" in inner:
                engine.blocking("shard", Op.REDUCE_SCATTER)
            reduce_bucket(engine, part, parts)


def reduce_bucket(engine: Engine, part: int, parts: int) -> None:
    """Start the reduction of one bucket; the last one is waited for."""
    if "dp" not in engine.groups:
        return
    last = part == parts - 1
    share = BUCKET_SHARES[part % len(BUCKET_SHARES)]
    joined = engine.now if last else np.zeros(len(engine.now))
    release = engine.start("dp", Op.ALL_REDUCE, part=share, joined=joined)
    if last:
        engine.wait("dp", release)
