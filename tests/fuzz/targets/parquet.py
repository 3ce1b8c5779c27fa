"""What-if traces (Parquet): mutated as values, since a changed byte is Arrow's to notice."""

from __future__ import annotations

import io
import random
from typing import Any

import pyarrow as arrow
import pyarrow.parquet as parquet

from tests.fuzz.mutate import mutate_bytes, mutate_value
from tests.fuzz.targets.files import check_files, mutate_files
from tests.unit.importers.what_if_traces import pipeline_ops


def seeds() -> dict[str, bytes]:
    """Return small traces of a pipeline."""
    return {
        "pipeline": _pack(pipeline_ops(replicas=1, stages=2, microbatches=2, steps=3)),
        "replicas": _pack(pipeline_ops(replicas=2, stages=2, microbatches=1, steps=2)),
    }


def check(data: bytes) -> None:
    """See ``check_files``."""
    check_files(data, lambda number: f"trace-{number}.parquet")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with some cells changed, or a column of another type."""
    return mutate_files(data, rng, _change)


def _pack(ops: list[dict[str, Any]]) -> bytes:
    out = io.BytesIO()
    names = list(ops[0])
    parquet.write_table(arrow.table({name: [op[name] for op in ops] for name in names}), out)
    return out.getvalue()


def _change(content: bytes, rng: random.Random) -> bytes:
    try:
        ops = parquet.read_table(io.BytesIO(content)).to_pydict()
        for _ in range(1 << rng.randrange(4)):
            name = rng.choice(list(ops))
            column = ops[name]
            row = rng.randrange(len(column))
            column[row] = mutate_value(column[row], rng)
        if rng.random() < 0.05:
            del ops[rng.choice(list(ops))]
        out = io.BytesIO()
        parquet.write_table(arrow.table(ops), out)
        return out.getvalue()
    except (arrow.ArrowException, ValueError, TypeError, OverflowError, IndexError, OSError):
        return mutate_bytes(content, rng)
