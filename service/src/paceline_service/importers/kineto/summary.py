"""What the traces say by themselves, beside the verdict: sentences and figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline_service.analysis.blame.arrivals import HOST_LATE_NS, LastArrivals
from paceline_service.analysis.report import Finding
from paceline_service.importers.kineto.windows import Window

_SHOWN = 8


def trace_facts(windows: Sequence[Window], arrivals: LastArrivals) -> dict[str, Any]:
    """Return the object ``data.trace`` of the report (docs/offline.md)."""
    ranks = []
    for rank in sorted({rank for window in windows for rank in window}):
        busy = [window[rank].busy for window in windows if rank in window]
        ranks.append(
            {
                "rank": rank,
                "files": [w[rank].trace.path.name for w in windows if rank in w],
                "window_ns": sum(b.window_ns for b in busy),
                "compute_ns": sum(b.compute_ns for b in busy),
                "communication_ns": sum(b.communication_ns for b in busy),
                "memory_ns": sum(b.memory_ns for b in busy),
                "busy_ns": sum(b.busy_ns for b in busy),
                "overlap_ns": sum(b.overlap_ns for b in busy),
                "exposed_communication_ns": sum(b.exposed_ns for b in busy),
                "idle_ns": sum(b.idle_ns for b in busy),
            }
        )
    return {
        "collectives": arrivals.collectives,
        "wait_ns": arrivals.total_ns,
        "ranks": ranks,
        "last_arrivers": [
            {
                "rank": rank,
                "collectives": int(arrivals.last[rank]),
                "caused_wait_ns": int(arrivals.caused_ns[rank]),
                "host_late": int(arrivals.host_late[rank]),
                "gpu_busy": int(arrivals.gpu_busy[rank]),
                "cause": cause_of(arrivals, rank),
            }
            for rank in _order(arrivals)
        ],
    }


def cause_of(arrivals: LastArrivals, rank: int) -> str:
    """Return ``host`` or ``compute`` where most late arrivals of a rank were of that kind."""
    late, busy = int(arrivals.host_late[rank]), int(arrivals.gpu_busy[rank])
    if 2 * late > arrivals.last[rank]:
        return "host"
    return "compute" if 2 * busy > arrivals.last[rank] else "unknown"


def with_cause(finding: Finding, arrivals: LastArrivals) -> Finding:
    """Return a finding about a slow rank with the cause that its launches tell, if it has none."""
    causes = {cause_of(arrivals, rank) for rank in finding.ranks}
    if finding.kind != "straggler" or finding.cause != "unknown" or len(causes) != 1:
        return finding
    cause = causes.pop()
    if cause == "unknown":
        return finding
    sentences = []
    for rank in finding.ranks:
        late, busy = int(arrivals.host_late[rank]), int(arrivals.gpu_busy[rank])
        sentences.append(
            f"of the {int(arrivals.last[rank])} collectives at which rank {rank} arrived last its "
            f"kernel began within {HOST_LATE_NS // 1000} us of its launch at {late}, and later, "
            f"behind other work of its GPU, at {busy}"
        )
    return replace(finding, cause=cause, evidence=[*finding.evidence, *sentences])


def notes_of(windows: Sequence[Window], arrivals: LastArrivals, assumed: bool) -> list[str]:
    """Return sentences for the report: the order of caused waits, then what the ranks did."""
    notes = _arrival_notes(arrivals)
    timelines = [timeline for window in windows for timeline in window.values()]
    if len({t.trace.rank for t in timelines}) == 1:
        for timeline in timelines:
            busy, where = timeline.busy, "GPU" if timeline.on_device else "CPU"
            notes.append(
                f"rank {timeline.trace.rank} alone, over {_ms(busy.window_ns)} of its {where}: "
                f"compute {_ms(busy.compute_ns)}, communication {_ms(busy.communication_ns)} "
                f"({_ms(busy.exposed_ns)} of it exposed), memory {_ms(busy.memory_ns)}, idle "
                f"{_ms(busy.idle_ns)}"
            )
    if assumed:
        notes.append(
            "no trace names process groups; one group of all ranks was assumed, because the order "
            "of the collectives agrees on all of them"
        )
    silent = [t for t in timelines if not len(t.calls) and t.trace.call_names and not t.on_device]
    if silent:
        notes.append(
            f"{silent[0].trace.path.name} calls c10d but shows no communication kernel: profile "
            "with ProfilerActivity.CUDA"
        )
    return notes


def _arrival_notes(arrivals: LastArrivals) -> list[str]:
    order = _order(arrivals)
    if not order:
        return []
    parts = [
        f"rank {rank} {_ms(int(arrivals.caused_ns[rank]))} (last at {int(arrivals.last[rank])})"
        for rank in order[:_SHOWN]
    ]
    more = f", {len(order) - _SHOWN} other ranks less each" if len(order) > _SHOWN else ""
    notes = [
        f"of {_ms(arrivals.total_ns)} of waiting in {arrivals.collectives} collectives, caused by "
        f"arriving last: {', '.join(parts)}{more}"
    ]
    late = [rank for rank in order[:_SHOWN] if cause_of(arrivals, rank) == "host"]
    if late:
        told = ", ".join(
            f"rank {rank} at {int(arrivals.host_late[rank])} of {int(arrivals.last[rank])}"
            for rank in late
        )
        notes.append(
            f"late because of the host (the kernel began within {HOST_LATE_NS // 1000} us of its "
            f"launch, but was launched late; cause host): {told}"
        )
    busy = [rank for rank in order[:_SHOWN] if cause_of(arrivals, rank) == "compute"]
    if busy:
        told = ", ".join(f"rank {r} at {int(arrivals.gpu_busy[r])} of {int(arrivals.last[r])}"
                         for r in busy)  # fmt: skip
        notes.append(f"late because the GPU was still busy (cause compute): {told}")
    return notes


def _order(arrivals: LastArrivals) -> list[int]:
    order = np.argsort(-arrivals.caused_ns, kind="stable")
    return [int(rank) for rank in order if arrivals.caused_ns[rank] > 0]


def _ms(time_ns: int) -> str:
    return f"{time_ns / 1e6:,.1f} ms"
