"""Event logs (NDJSON)."""

from __future__ import annotations

import random
import re
import tempfile
from pathlib import Path

import msgspec

from tests.fuzz.mutate import mutate_bytes, mutate_value
from tests.fuzz.targets.files import check_files, join, mutate_files
from tests.simulator.job import Scenario, Simulated, simulate
from tests.unit.importers.logs import all_reduce, header, phase, small_job, text, write_simulated

_MANY_RANKS = re.compile(rb'"world_size":\s*\+?\d{5,}')


def seeds() -> dict[str, bytes]:
    """Return logs as Paceline writes them, and as somebody else would."""
    job = simulate(Scenario(data_parallel=2, steps=4, seed=2, buckets=1))
    per_rank = [
        text([header(2), *(line for s in range(4) for line in (phase(r, s), all_reduce(r, s)))])
        for r in range(2)
    ]
    facts = [
        {"rank": 0, "time_ns": 10**8, "telemetry": {"gpu_temp_c": 60.5, "gpu_uuid": "GPU-1"}},
        {"rank": 0, "time_ns": 2 * 10**8, "telemetry": {"gpu_sm_clock_mhz": 300, "x": "y"}},
        {"rank": 1, "ended": "killed", "now_ns": 10**10, "dropped": {"ring_torn": 3}},
    ]
    return {
        "foreign": text(small_job()),
        "per-rank": join(per_rank),
        "own": _as_paceline_writes(job),
        "facts": text([*small_job(steps=5), *facts]),
    }


def _as_paceline_writes(job: Simulated) -> bytes:
    with tempfile.TemporaryDirectory() as directory:
        (path,) = write_simulated(Path(directory), job)
        return path.read_bytes()


def check(data: bytes) -> None:
    """See ``check_files``; a report of very many ranks is long, and no fault."""
    if _MANY_RANKS.search(data):
        return
    check_files(data, lambda number: f"rank{number}.ndjson")


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return ``data`` with a line changed as a value."""
    return mutate_files(data, rng, _change_line)


def _change_line(content: bytes, rng: random.Random) -> bytes:
    lines = content.split(b"\n")
    for _ in range(1 << rng.randrange(4)):
        at = rng.randrange(len(lines))
        try:
            lines[at] = msgspec.json.encode(mutate_value(msgspec.json.decode(lines[at]), rng))
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
            lines[at] = mutate_bytes(lines[at], rng)
    if rng.random() < 0.1:
        rng.shuffle(lines)
    return b"\n".join(lines)
