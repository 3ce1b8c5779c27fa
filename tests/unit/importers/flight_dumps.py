"""Dumps of the Flight Recorder as files, of made-up jobs whose truth is known."""

from __future__ import annotations

import gzip
import json
import pickle
from pathlib import Path
from typing import Any


def status(issued: int, finished: int) -> dict[str, int]:
    return {
        "last_enqueued_collective": issued,
        "last_started_collective": -1,
        "last_completed_collective": finished,
    }


def entry(seq: int, *, pg: int = 0, name: str = "0", desc: str = "default_pg", **more: Any) -> Any:
    return {
        "record_id": seq, "pg_id": pg, "process_group": (name, desc), "collective_seq_id": seq,
        "p2p_seq_id": 0, "op_id": seq, "profiling_name": "nccl:all_reduce",
        "time_created_ns": 10**18 + seq, "input_sizes": [[4]], "input_dtypes": ["Float"],
        "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled",
        "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
        "retired": False, "timeout_ms": 600000, "is_p2p": False, **more,
    }  # fmt: skip


def group(name: str, desc: str, ranks: list[int]) -> dict[str, str]:
    return {"name": name, "desc": desc, "ranks": str(ranks)}


def dumps_of(size: int = 4) -> list[dict[str, Any]]:
    """All wait in number 8 of the default group, which the last rank never issued."""
    return [
        {
            "version": "2.9",
            "pg_config": {"0": group("0", "default_pg", list(range(size)))},
            "pg_status": {"0": status(8 if rank < size - 1 else 7, 7)},
            "entries": [entry(8)] if rank < size - 1 else [],
        }
        for rank in range(size)
    ]


def write(directory: Path, dumps: list[dict[str, Any]], form: str = "pickle") -> list[Path]:
    paths = []
    for rank, dump in enumerate(dumps):
        path = directory / f"_dump_{rank}"
        if form == "pickle":
            path.write_bytes(pickle.dumps(dump, protocol=2))
        elif form == "gzip":
            path.write_bytes(gzip.compress(pickle.dumps(dump, protocol=2)))
        else:
            path.write_text(json.dumps(dump))
        paths.append(path)
    return paths
