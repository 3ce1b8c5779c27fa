"""What the traces say by themselves, beside the verdict: sentences and figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paceline.counted import counted
from paceline_service.analysis.blame.arrivals import HOST_LATE_NS, LastArrivals
from paceline_service.analysis.causes.actions import action_for
from paceline_service.analysis.report import Finding, RankRows, Report
from paceline_service.importers.kineto.kernels import function_of
from paceline_service.importers.kineto.rank import Busy, RankTimeline
from paceline_service.importers.kineto.windows import Window

_SHOWN = 8
_NAME_LENGTH = 120
_AT_EDGES = 0.2
"""Of the collectives, calls without a kernel: some are empty, or run after the window's end."""


def trace_facts(windows: Sequence[Window], arrivals: LastArrivals) -> dict[str, Any]:
    """Return the object ``data.trace`` of the report (docs/math/trace-facts.md)."""
    rows = []
    for rank in sorted({rank for window in windows for rank in window}):
        own = [window[rank] for window in windows if rank in window]
        rows.append(
            {
                "rank": rank,
                "files": [timeline.trace.path.name for timeline in own],
                "device": "gpu" if all(timeline.on_device for timeline in own) else "cpu",
                "communication_calls": sum(len(timeline.calls) for timeline in own),
                "calls_without_kernel": sum(timeline.calls.silent for timeline in own),
                **_time([timeline.busy for timeline in own]),
            }
        )
    every = [timeline.busy for window in windows for timeline in window.values()]
    return {
        "collectives": arrivals.collectives,
        "wait_ns": arrivals.total_ns,
        "job": _time(every),
        "ranks": rows,
        "unknown_kernels": [
            {"name": name[:_NAME_LENGTH], "count": count}
            for name, count in _suspects(windows).most_common(_SHOWN)
        ],
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


def _time(parts: Sequence[Busy]) -> dict[str, Any]:
    """Return what some ranks did with their time, and the shares that follow from it."""
    window = sum(part.window_ns for part in parts)
    compute = sum(part.compute_ns for part in parts)
    communication = sum(part.communication_ns for part in parts)
    overlap = sum(part.overlap_ns for part in parts)
    idle = sum(part.idle_ns for part in parts)
    return {
        "window_ns": window,
        "compute_ns": compute,
        "communication_ns": communication,
        "memory_ns": sum(part.memory_ns for part in parts),
        "busy_ns": sum(part.busy_ns for part in parts),
        "overlap_ns": overlap,
        "exposed_communication_ns": communication - overlap,
        "idle_ns": idle,
        "gamma": _ratio(communication, compute),
        "overlap_ratio": _ratio(overlap, communication),
        "exposed_ratio": _ratio(communication - overlap, window),
        "idle_ratio": _ratio(idle, window),
    }


def _ratio(part_ns: int, whole_ns: int) -> float | None:
    return part_ns / whole_ns if whole_ns > 0 else None


def _suspects(windows: Sequence[Window]) -> Counter[str]:
    """Return the kernels that look like communication but are of no known name."""
    found: Counter[str] = Counter()
    for window in windows:
        for timeline in window.values():
            for name, count in timeline.trace.suspects.items():
                found[function_of(name)] += count
    return found


def cause_of(arrivals: LastArrivals, rank: int) -> str:
    """Return ``host`` or ``compute`` where most late arrivals of a rank were of that kind."""
    late, busy = int(arrivals.host_late[rank]), int(arrivals.gpu_busy[rank])
    if 2 * late > arrivals.last[rank]:
        return "host"
    return "compute" if 2 * busy > arrivals.last[rank] else "unknown"


def with_causes(report: Report, arrivals: LastArrivals, nodes: Mapping[int, str]) -> Report:
    """Return a report whose slow ranks have the cause that their launches tell, if they had none.

    What follows from a cause, the next command and the ranks' own, follows here too.
    """
    findings = [_with_cause(finding, arrivals, nodes) for finding in report.findings]
    told = {
        rank: finding.cause
        for finding, before in zip(findings, report.findings, strict=True)
        if finding is not before
        for rank in finding.ranks
    }
    expected = report.expected
    if expected is not None and told:
        from paceline_service.analysis.expected.found import recaused

        expected = recaused(expected, report.findings, findings)
    rows = report.ranks
    if isinstance(rows, RankRows):
        rows = rows.with_causes(told)
    return replace(report, findings=findings, ranks=rows, expected=expected)


def _with_cause(finding: Finding, arrivals: LastArrivals, nodes: Mapping[int, str]) -> Finding:
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
    rank = finding.ranks[0]
    action = action_for(
        cause, cause, rank=rank, node=nodes.get(rank, ""), alone=len(set(nodes.values())) < 2,
        whole_node=len(finding.ranks) > 1,
    )  # fmt: skip
    return replace(finding, cause=cause, action=action, evidence=[*finding.evidence, *sentences])


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
    notes += _unknown_kernels(windows)
    notes += _silent_calls(timelines)
    silent = [t for t in timelines if not len(t.calls) and t.trace.call_names and not t.on_device]
    if silent:
        notes.append(
            f"{silent[0].trace.path.name} calls c10d but shows no communication kernel: profile "
            "with ProfilerActivity.CUDA"
        )
    return notes


def _unknown_kernels(windows: Sequence[Window]) -> list[str]:
    found = _suspects(windows)
    if not found:
        return []
    parts = [f"{name[:_NAME_LENGTH]} ({count:,})" for name, count in found.most_common(_SHOWN)]
    more = f" and {len(found) - _SHOWN} others" if len(found) > _SHOWN else ""
    return [
        f"{found.total():,} kernels look like communication but are of no known name: "
        f"{', '.join(parts)}{more}; they count as computation, and are not paired"
    ]


def _silent_calls(timelines: Sequence[RankTimeline]) -> list[str]:
    """Tell of collectives that ran without a kernel, where they are more than some at an edge."""
    silent = sum(timeline.calls.silent for timeline in timelines)
    if silent <= _AT_EDGES * sum(len(timeline.calls) for timeline in timelines):
        return []
    return [
        f"{silent:,} calls of collectives launched no kernel that is in the traces: copy engines "
        "or a kernel of another name did their work, and nobody is blamed by them"
    ]


def _arrival_notes(arrivals: LastArrivals) -> list[str]:
    order = _order(arrivals)
    if not order:
        return []
    parts = [
        f"rank {rank} {_ms(int(arrivals.caused_ns[rank]))} (last at {int(arrivals.last[rank])})"
        for rank in order[:_SHOWN]
    ]
    others = len(order) - _SHOWN
    more = f", {counted(others, 'other rank')} less each" if others > 0 else ""
    notes = [
        f"of {_ms(arrivals.total_ns)} of waiting in {counted(arrivals.collectives, 'collective')}, "
        f"caused by arriving last: {', '.join(parts)}{more}"
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
