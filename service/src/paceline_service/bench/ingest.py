"""What one collector takes: the limits that it has to hold, each measured with a whole load.

Everything goes through HTTP into a collector process of its own (``bench.load``).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import msgspec

from paceline.errors import TransportError
from paceline_service.bench.load.figures import Json, faults_of
from paceline_service.bench.load.run import Target, Then, run_load
from paceline_service.bench.load.sender import Troubles
from paceline_service.bench.load.shape import Fault, LoadShape
from paceline_service.bench.machine import cpu_s
from paceline_service.client import Client

LOADS = {
    "100 collectives": LoadShape(
        ranks=512, collectives=100, steps=80, rate=0.0,
        fault=Fault(rank=5, percent=30.0, first_step=15),
    ),
    "20 collectives": LoadShape(
        ranks=2048, collectives=20, steps=80, rate=0.0,
        fault=Fault(rank=5, percent=30.0, first_step=15),
    ),
    "1 step/s": LoadShape(
        ranks=256, collectives=20, steps=40, rate=1.0,
        fault=Fault(rank=5, percent=30.0, first_step=15),
    ),
}  # fmt: skip
QUICK_LOADS = {
    "100 collectives": LoadShape(
        ranks=64, collectives=100, steps=60, rate=0.0,
        fault=Fault(rank=5, percent=30.0, first_step=20),
    ),
    "1 step/s": LoadShape(
        ranks=64, collectives=20, steps=40, rate=2.0,
        fault=Fault(rank=5, percent=30.0, first_step=10),
    ),
}  # fmt: skip
QUERIED = LoadShape(ranks=1024, collectives=1, steps=1040, rate=100.0)
QUICK_QUERIED = LoadShape(ranks=64, collectives=2, steps=240, rate=40.0)
QUERIED_STEPS = 1000
QUERIES = 5
Say = Callable[[str], None]


def measure(*, quick: bool, say: Say = lambda text: None) -> dict[str, object]:
    """Return the figures of every load and of the query."""
    loads = {}
    for name, shape in (QUICK_LOADS if quick else LOADS).items():
        say(f"{name}: {shape.ranks} ranks x {shape.collectives} x {shape.steps} steps")
        loads[name] = _load(shape)
    shape = QUICK_QUERIED if quick else QUERIED
    say(f"query: {shape.ranks} ranks, {shape.steps} steps")
    queried = _load(shape, lambda client, pid: {"query": _query(client, pid, shape)})
    return {
        "loads": loads,
        "query": {"ranks": shape.ranks, **queried["query"]},
    }


def _load(shape: LoadShape, then: Then | None = None) -> Json:
    found = run_load(shape, Troubles(), Target(), then=then)
    wrong = faults_of(found)
    if wrong:
        raise TransportError(f"the figures mean nothing: {'; '.join(wrong)}")
    return found


def _query(client: Client, pid: int, shape: LoadShape) -> Json:
    """Return how long the newest steps of all ranks take, from the question to the last byte."""
    path = f"/v1/jobs/{shape.job}/steps?limit={QUERIED_STEPS}"
    took_s, answer = [], b""
    before_cpu_s = cpu_s(pid)
    for _ in range(QUERIES):
        began_s = time.perf_counter()
        answer = b"".join(client.stream(path))
        took_s.append(time.perf_counter() - began_s)
    used_s = (cpu_s(pid) - before_cpu_s) / QUERIES
    began_s = time.perf_counter()
    one = b"".join(client.stream(f"{path}&ranks=5"))
    one_rank_s = time.perf_counter() - began_s
    return {
        "steps": len(msgspec.json.decode(answer)["steps"]),
        "seconds": round(median(took_s), 4),
        "collector_cpu_s": round(used_s, 4),
        "longest_s": round(max(took_s), 4),
        "answer_mib": round(len(answer) / (1 << 20), 1),
        "one_rank_s": round(one_rank_s, 4),
        "one_rank_mib": round(len(one) / (1 << 20), 3),
    }
