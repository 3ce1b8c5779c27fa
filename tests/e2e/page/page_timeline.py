"""The timeline of a seeded job: every rank's pieces of a step in their true order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.e2e.page.page_jobs import PHASES, PageJob

MAX_CELLS = 20_000
DEFAULT_STEPS = 20
BACKWARD = PHASES.index("backward")
Json = dict[str, Any]


def timeline(
    job: PageJob, first: int | None, last: int | None, limit: int, ranks: list[int]
) -> Json:
    """Return some steps as ``GET /v1/jobs/{job}/timeline`` does.

    A step is host, input, forward and backward; a small all_reduce runs behind the backward pass,
    a large one after it, for which everybody waits; then the optimizer.
    """
    newest = job.steps - 1
    last = newest if last is None else min(last, newest)
    first = max(last - limit + 1, 0) if first is None else first
    end = min(last, first + max(1, min(limit, MAX_CELLS // len(ranks))) - 1)
    seen = [rank for rank in ranks if rank not in job.missing_ranks]
    events: list[Json] = []
    for step in range(first, end + 1):
        events += _step(job, step, seen)
    origin_ns = job.started_wall_ns + job.start_of(first)
    start_us = job.start_of(first) / 1000
    for event in events:
        event["ts"] -= start_us
    return {
        "displayTimeUnit": "ms",
        "otherData": {
            "schema": "paceline.timeline/1", "job": job.name, "attempt": job.attempt,
            "first_step": first, "last_step": end, "cut": end < last,
            "next_from": end + 1 if end < last else None, "origin_wall_ns": origin_ns,
        },
        "traceEvents": events,
    }  # fmt: skip


def _step(job: PageJob, step: int, ranks: Iterable[int]) -> list[Json]:
    phase_ns, comm_ns, _ = job.step(step)
    start_ns = job.start_of(step)
    arrival_ns = start_ns + phase_ns[:, : BACKWARD + 1].sum(axis=1)
    last_rank, last_ns = int(arrival_ns.argmax()), int(arrival_ns.max())
    release_ns = last_ns + comm_ns
    bucket = {"step": step, "group": "dp0", "seq": 2 * step, "bytes": 1 << 20}
    args = {**bucket, "seq": 2 * step + 1, "bytes": 26_214_400, "last_arriver": last_rank}
    events: list[Json] = []
    for rank in ranks:
        at_ns = start_ns

        def add(
            kind: str, name: str, begin_ns: float, end_ns: float, what: Json, pid: int = rank + 1
        ) -> None:
            us = {"ts": begin_ns / 1000, "dur": (end_ns - begin_ns) / 1000}
            events.append({"ph": "X", "pid": pid, "cat": kind, "name": name, "args": what, **us})

        for phase, ns in zip(PHASES[1 : BACKWARD + 1], phase_ns[rank, 1:].tolist(), strict=False):
            at_ns = at_ns + int(phase_ns[rank, 0]) if phase == "input" else at_ns
            add("phase", phase, at_ns, at_ns + ns, {"step": step})
            at_ns += ns
        backward_ns = int(phase_ns[rank, BACKWARD])
        behind = {**bucket, "last_arriver": None, "exposed_comm_ns": 0}
        add(
            "collective", "all_reduce", at_ns - 0.6 * backward_ns, at_ns - 0.3 * backward_ns, behind
        )
        exposed = {**args, "exposed_comm_ns": comm_ns}
        add("collective", "all_reduce", at_ns, release_ns, exposed)
        if at_ns < last_ns:
            add(
                "wait",
                f"waits for rank {last_rank}",
                at_ns,
                last_ns,
                {**exposed, "for": "all_reduce"},
            )
        if rank == last_rank:
            late = {**exposed, "late_by_ns": int(last_ns - arrival_ns.min())}
            events.append({"ph": "i", "pid": rank + 1, "cat": "last arriver", "s": "t",
                           "name": "last arriver", "ts": last_ns / 1000, "args": late})  # fmt: skip
        end_ns = release_ns + int(phase_ns[rank, BACKWARD + 1])
        add("phase", "optimizer", release_ns, end_ns, {"step": step})
        add("step", f"step {step}", start_ns, end_ns, {"step": step})
    return events
