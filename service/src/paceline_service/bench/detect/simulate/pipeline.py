"""One step of a job with pipeline stages: one forward, one backward (1F1B), sends and receives."""

from __future__ import annotations

from functools import cache

import numpy as np

from paceline.vocabulary import Flag, Op, Phase
from paceline_service.bench.detect.simulate.engine import Engine
from paceline_service.bench.detect.simulate.layout import IntArray
from paceline_service.bench.detect.simulate.programs import (
    begin_step,
    end_step,
    reduce_bucket,
)
from paceline_service.bench.detect.simulate.spec import FloatArray

Task = tuple[int, bool, int]
"""Stage, whether backward, micro-batch."""


@cache
def schedule(stages: int, micro_batches: int) -> tuple[Task, ...]:
    """Return all tasks of a step in an order in which each one's inputs come before it."""
    queues: list[list[Task]] = []
    for stage in range(stages):
        warm = min(stages - stage - 1, micro_batches)
        tasks: list[Task] = [(stage, False, m) for m in range(warm)]
        for m in range(micro_batches - warm):
            tasks += [(stage, False, warm + m), (stage, True, m)]
        tasks += [(stage, True, m) for m in range(micro_batches - warm, micro_batches)]
        queues.append(tasks)
    done: set[Task] = set()
    order: list[Task] = []
    while any(queues):
        for queue in queues:
            if queue and _ready(queue[0], stages, done):
                order.append(queue.pop(0))
                done.add(order[-1])
    return tuple(order)


def _ready(task: Task, stages: int, done: set[Task]) -> bool:
    stage, backward, m = task
    if not backward:
        return stage == 0 or (stage - 1, False, m) in done
    return (stage == stages - 1 or (stage + 1, True, m) in done) and (stage, False, m) in done


def pipeline_step(engine: Engine) -> None:
    """One step; a stage's ranks at the same place of the next stage are who they talk to."""
    begin_step(engine)
    layout, count = engine.layout, engine.spec.micro_batches
    sent: dict[Task, FloatArray] = {}
    for task in schedule(layout.pp, count):
        stage, backward, m = task
        ranks = layout.stage(stage)
        phase = Phase.BACKWARD if backward else Phase.FORWARD
        before = stage + 1 if backward else stage - 1
        with engine.phase(phase, ranks):
            if 0 <= before < layout.pp:
                _receive(engine, layout.stage(before), ranks, sent[before, backward, m],
                         engine.step * count + m)  # fmt: skip
            engine.compute(phase, ranks, count)
            engine.blocking("tp", Op.ALL_REDUCE, part=1 / count, stage=stage)
        sent[task] = engine.now[ranks].copy()
    ranks = layout.ranks
    with engine.phase(Phase.BACKWARD, ranks):
        reduce_bucket(engine, 0, 1)
    end_step(engine)


def _receive(
    engine: Engine, source: IntArray, target: IntArray, sent: FloatArray, seq: int
) -> None:
    """The receivers wait; the senders went on long ago. A message needs both to be there."""
    asked = engine.now[target].copy()
    arrived = np.maximum(asked, sent) + engine.message_ns(source, target)
    groups = engine.groups["pp"]
    group = groups.index[np.arange(len(target)) % len(groups.index)]
    number = np.full(len(target), seq)
    payload = engine.spec.bytes_of("pp")
    engine.emitter.collective(
        Op.SEND, engine.step, source, group, number, start=sent, end=arrived, join=None,
        payload_bytes=payload, flags=Flag.ASYNC, peer=target,
    )  # fmt: skip
    engine.emitter.collective(
        Op.RECV, engine.step, target, group, number, start=asked, end=arrived, join=asked,
        payload_bytes=payload, flags=Flag(0), peer=source,
    )  # fmt: skip
    engine.now[target] = arrived
