"""Small op-level timelines in Parquet, made from a simulated pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from tests.simulator.pipeline import program

Op = dict[str, Any]
_NAMES = {("compute", 0): "forward-compute", ("compute", 1): "backward-compute",
          ("send", 0): "forward-send", ("send", 1): "backward-send",
          ("recv", 0): "forward-recv", ("recv", 1): "backward-recv"}  # fmt: skip


def pipeline_ops(
    *,
    replicas: int = 2,
    stages: int = 4,
    microbatches: int = 4,
    steps: int = 12,
    weight: tuple[float, ...] = (1, 1, 1, 1.6),
) -> list[Op]:
    """Return the operations of a job whose ranks are numbered stage by stage, times in s."""
    ops: list[Op] = []
    for step in range(100, 100 + steps):
        for replica in range(replicas):
            ops += _one_replica(replica, replicas, stages, microbatches, step, weight)
    return ops


def _one_replica(
    replica: int, replicas: int, stages: int, microbatches: int, step: int,
    weight: tuple[float, ...],
) -> list[Op]:  # fmt: skip
    ops: list[Op] = []
    now = [0.01 + 0.001 * stage for stage in range(stages)]
    count: dict[tuple[int, str], int] = {}

    def add(stage: int, name: str, start: float, end: float, microbatch: int = -1) -> None:
        number = count[stage, name] = count.get((stage, name), -1) + 1
        ops.append(
            {"dp_rank": replica, "stage": stage, "rank": stage * replicas + replica, "step": step,
             "optype": name, "start_ts": start, "duration": end - start, "seq_id": number,
             "mc": 0, "mb_id": microbatch, "gmc": stage if "compute" in name else -1}
        )  # fmt: skip

    for stage in range(stages):
        add(stage, "params-all-gather", 0.0, now[stage])
    programs = [program(stage, stages, microbatches) for stage in range(stages)]
    sent: dict[tuple[int, int, int], float] = {}
    position = [0] * stages
    while any(position[k] < len(programs[k]) for k in range(stages)):
        for k in range(stages):
            while position[k] < len(programs[k]):
                what, way, microbatch = programs[k][position[k]]
                if what == "compute":
                    took = (0.01, 0.02)[way] * weight[k]
                    add(k, _NAMES[what, way], now[k], now[k] + took, microbatch)
                    now[k] += took
                elif what == "send":
                    sent[k, way, microbatch] = now[k]
                else:
                    source = k + (1 if way else -1)
                    if (source, way, microbatch) not in sent:
                        break
                    began = sent.pop((source, way, microbatch))
                    end = max(began, now[k]) + 0.0003
                    add(source, _NAMES["send", way], began, end)
                    add(k, _NAMES["recv", way], now[k], end)
                    now[k] = end
                position[k] += 1
    for stage in range(stages):
        add(stage, "layernorm-grads-all-reduce", now[stage], now[stage] + 0.0001)
        now[stage] += 0.0001
    together = max(now) + 0.005
    for stage in range(stages):
        add(stage, "grads-reduce-scatter", now[stage], now[stage] + 0.004)
        add(stage, "optimizer-clip-main-grad", now[stage] + 0.004, together)
        add(stage, "optimizer", together, together + 0.003)
    return ops


def write_trace(path: Path, ops: list[Op], *, leave_out: tuple[str, ...] = ()) -> Path:
    """Write ``ops`` as a trace file, columns ``leave_out`` missing."""
    names = [name for name in ops[0] if name not in leave_out]
    table = arrow.table({name: [op[name] for op in ops] for name in names})
    parquet.write_table(table, path)
    return path
