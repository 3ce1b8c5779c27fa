"""Primus' dumps of pipeline times, of a simulated 1F1B pipeline whose heavy stage is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.simulator.pipeline import program

Iteration = dict[str, Any]


def pipeline_times(
    *,
    stages: int = 4,
    microbatches: int = 8,
    iterations: int = 14,
    weight: tuple[float, ...] = (1, 1, 1, 1.2),
    warm_up: float = 3.0,
    clock_ms: float = 0.0,
    seed: int = 3,
) -> list[dict[str, Iteration]]:
    """Return the iterations of each pipeline rank, ms since its own schedule began.

    Args:
        stages: pipeline ranks.
        microbatches: of an iteration.
        iterations: how many.
        weight: how heavy each stage is.
        warm_up: how many times as long the first iteration takes.
        clock_ms: by how much the schedule of each rank begins after that of the one before.
        seed: of the jitter.
    """
    rng = np.random.default_rng(seed)
    dumps: list[dict[str, Iteration]] = [{} for _ in range(stages)]
    for number in range(1, iterations + 1):
        slow = warm_up if number == 1 else 1.0
        for stage, own in enumerate(_one(stages, microbatches, weight, slow, rng)):
            shifted = {name: [t - stage * clock_ms for t in times] for name, times in own.items()}
            total = max(max(times) for times in shifted.values()) + 0.5
            dumps[stage][str(number)] = {"total": total, "memory": 80.0, **shifted}
    return dumps


def _one(
    stages: int, microbatches: int, weight: tuple[float, ...], slow: float,
    rng: np.random.Generator,
) -> list[dict[str, list[float]]]:  # fmt: skip
    own = [{f"{way}_{end}": [] for way in ("fwd", "bwd") for end in ("start", "end")}
           for _ in range(stages)]  # fmt: skip
    now = [20.0] * stages
    programs = [program(stage, stages, microbatches) for stage in range(stages)]
    position = [0] * stages
    sent: dict[tuple[int, int, int], float] = {}
    while any(position[k] < len(programs[k]) for k in range(stages)):
        for k in range(stages):
            while position[k] < len(programs[k]):
                what, way, microbatch = programs[k][position[k]]
                source = k + (1 if way else -1)
                if what == "compute":
                    took = (10.0, 20.0)[way] * weight[k] * slow * float(rng.normal(1, 0.005))
                    name = "bwd" if way else "fwd"
                    own[k][f"{name}_start"].append(now[k])
                    own[k][f"{name}_end"].append(now[k] + took)
                    now[k] += took
                elif what == "send":
                    sent[k, way, microbatch] = now[k]
                elif (source, way, microbatch) not in sent:
                    break
                else:
                    now[k] = max(now[k], sent.pop((source, way, microbatch)) + 0.3)
                position[k] += 1
    return own


def interleaved_times(
    *, stages: int = 4, microbatches: int = 8, iterations: int = 12, heavy: float = 1.2,
    clock_ms: float = 3.0,
) -> list[dict[str, Iteration]]:  # fmt: skip
    """Return the same of a pipeline with two chunks on each rank, its last rank ``heavy``.

    Each rank does as many micro-batches of one chunk as there are stages, then the same of the
    other; the chunks are not named.
    """
    rng = np.random.default_rng(5)
    blocks = range(0, microbatches, stages)
    order = [[(b + i, chunk if not way else 1 - chunk) for b in blocks for chunk in (0, 1)
              for i in range(stages)] for way in (0, 1)]  # fmt: skip
    dumps: list[dict[str, Iteration]] = [{} for _ in range(stages)]
    for number in range(1, iterations + 1):
        plans = []
        for rank in range(stages):
            warm = min((stages - rank - 1) * 2 + stages, len(order[0]))
            plan = [(0, *one) for one in order[0][:warm]]
            for ahead, back in zip(order[0][warm:], order[1], strict=False):
                plan += [(0, *ahead), (1, *back)]
            plans.append(plan + [(1, *one) for one in order[1][len(order[0]) - warm :]])
        ended: dict[tuple[int, int, int], float] = {}
        own: list[dict[str, list[float]]] = [
            {f"{way}_{end}": [] for way in ("fwd", "bwd") for end in ("start", "end")}
            for _ in range(stages)
        ]
        now, position = [10.0] * stages, [0] * stages
        while any(position[k] < len(plans[k]) for k in range(stages)):
            for k in range(stages):
                while position[k] < len(plans[k]):
                    way, batch, chunk = plans[k][position[k]]
                    depth = chunk * stages + k
                    before = (way, batch, depth + (1 if way else -1))
                    first = depth == (2 * stages - 1 if way else 0)
                    if not first and before not in ended:
                        break
                    ready = 0.0 if first else ended[before] + 0.3
                    start = max(now[k], ready)
                    weight = heavy if k == stages - 1 else 1.0
                    took = (5.0, 10.0)[way] * weight * float(rng.normal(1, 0.005))
                    now[k] = ended[way, batch, depth] = start + took
                    name = "bwd" if way else "fwd"
                    own[k][f"{name}_start"].append(start - k * clock_ms)
                    own[k][f"{name}_end"].append(now[k] - k * clock_ms)
                    position[k] += 1
        for rank in range(stages):
            total = max(own[rank]["bwd_end"]) + 0.5
            dumps[rank][str(number)] = {"total": total, "memory": 80.0, **own[rank]}
    return dumps


def write_dump(directory: Path, dumps: list[dict[str, Iteration]], **config: int) -> Path:
    """Write a dump as Primus does, with its configuration if any is given."""
    directory.mkdir(parents=True, exist_ok=True)
    if config:
        (directory / "config.json").write_text(json.dumps(config))
    for stage, iterations in enumerate(dumps):
        (directory / f"pp_rank_{stage}.json").write_text(json.dumps(iterations, indent=2))
    return directory
