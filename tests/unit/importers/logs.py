"""Small event logs as files, for the tests of the importer."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from paceline.event_log import LogGroup, LogHeader
from paceline_service.analysis.records import records_from_rows
from paceline_service.export.event_log import event_log_lines, named_groups
from tests.simulator.job import Simulated

MS = 1_000_000


def header(world_size: int = 2, **changes: Any) -> dict[str, Any]:
    return {
        "schema": "paceline.events/1",
        "world_size": world_size,
        "groups": {"dp0": list(range(world_size))},
    } | changes


def all_reduce(rank: int, step: int, **changes: Any) -> dict[str, Any]:
    start_ns = (100 * step + 60) * MS
    return {
        "rank": rank, "step": step, "group": "dp0", "op": "all_reduce", "seq": step,
        "bytes": 4096, "start_ns": start_ns, "end_ns": start_ns + 10 * MS,
    } | changes  # fmt: skip


def phase(rank: int, step: int, name: str = "forward", **changes: Any) -> dict[str, Any]:
    start_ns = (100 * step + 10) * MS
    return {
        "rank": rank, "step": step, "phase": name, "start_ns": start_ns,
        "end_ns": start_ns + 50 * MS,
    } | changes  # fmt: skip


def small_job(world_size: int = 2, steps: int = 3) -> list[dict[str, Any]]:
    """Return the header and the lines of a whole little job."""
    lines = [header(world_size)]
    for step in range(steps):
        for rank in range(world_size):
            lines += [phase(rank, step), all_reduce(rank, step)]
    return lines


def text(lines: Iterable[object]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def write(path: Path, lines: Iterable[object]) -> Path:
    raw = text(lines)
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def write_simulated(
    directory: Path,
    job: Simulated,
    *,
    per_rank: bool = False,
    ranks: Sequence[int] | None = None,
    **facts: Any,
) -> list[Path]:
    """Write a simulated job as one log, or as one per rank, as the collector and sidecar do."""
    names, groups = named_groups(LogGroup(name=n, ranks=r) for n, r in job.groups)
    size = len(job.rows)
    facts = {"nodes": dict.fromkeys(range(size), "node-0"), "run_id": "run-1"} | facts
    log_header = LogHeader(
        world_size=size, groups=groups, clock_domains=dict(enumerate(job.clocks)), **facts
    )
    chosen = range(size) if ranks is None else ranks
    batches = {rank: [records_from_rows(rank, job.rows[rank])] for rank in chosen}
    if not per_rank:
        path = directory / "job.ndjson"
        items = [batch for rank in chosen for batch in batches[rank]]
        path.write_text("".join(event_log_lines(log_header, names, items)))
        return [path]
    paths = []
    for rank in chosen:
        path = directory / f"rank{rank}.ndjson.gz"
        lines = "".join(event_log_lines(log_header, names, batches[rank]))
        path.write_bytes(gzip.compress(lines.encode()))
        paths.append(path)
    return paths
