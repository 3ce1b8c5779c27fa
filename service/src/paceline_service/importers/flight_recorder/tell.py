"""What is told about dumps: mismatches as findings, what they lack, and what they cannot carry."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

from paceline.counted import counted
from paceline.ranks import format_ranks
from paceline.vocabulary import op_name
from paceline_service.analysis.report import Finding, Report
from paceline_service.analysis.standstill.diagnose import Culprits
from paceline_service.importers.flight_recorder.dump import Dump
from paceline_service.importers.flight_recorder.layout import Layouts, name_of
from paceline_service.importers.flight_recorder.mismatch import Mismatch
from paceline_service.importers.flight_recorder.times import all_young, fell_silent_before

_MANNERS = {
    "type": "different operations",
    "size": "different sizes",
    "dtype": "different data types",
    "transfer": "different sizes or types at the two sides of a transfer",
}
_TOLD_RANKS = 4


def finding_of_mismatch(one: Mismatch, layouts: Layouts, dumps: Sequence[Dump]) -> Finding:
    """Return the finding about operations that do not fit together."""
    group = name_of(layouts.groups[one.group])
    places = places_of(dumps, one, layouts)
    consequence = (
        "it is still pending"
        if one.pending
        else "it is finished on all of them, so what it computed is not to be trusted"
    )
    return Finding(
        kind="desync", ranks=one.ranks, nodes=[], cause="unknown", phase=None, first_step=None,
        last_step=None, slowdown=None, recoverable_ratio=None, wasted_gpu_s=None, confidence=None,
        evidence=[
            f"{_MANNERS[one.manner]} under number {one.seq} of group {group}: {one.told}",
            f"{consequence}; the first such number of this group that the dumps hold",
            *(f"rank {rank} issued it at {places[rank]}" for rank in one.ranks[:_TOLD_RANKS]
              if rank in places),
        ],
        action=_action(one),
        collective={"group": group, "op": op_name(one.op), "seq": one.seq, "age_s": None},
    )  # fmt: skip


def _action(one: Mismatch) -> str:
    if not one.pending:
        return (
            "TORCH_DISTRIBUTED_DEBUG=DETAIL  # in the job's environment: torch then checks that "
            "collectives fit together"
        )
    rank = one.ranks[0]
    return (
        f"py-spy dump --pid PID_OF_RANK_{rank}  # on the node of rank {rank}; compare with the "
        "other side: they took different ways through the program"
    )


def places_of(
    dumps: Sequence[Dump], one: Mismatch | None = None, layouts: Layouts | None = None
) -> dict[int, str]:
    """Return where in its code each rank issued its newest operation, or that of a mismatch."""
    places = {}
    for dump in dumps:
        entries = dump.entries
        if one is not None and layouts is not None:
            mine = layouts.of_dump[dump.rank]
            entries = [e for e in entries if e.seq == one.seq and mine.get(e.pg_id) == one.group]
        newest = max(entries, key=lambda entry: entry.created_ns, default=None)
        if newest is not None and newest.place:
            places[dump.rank] = newest.place
    return places


def notes_of(dumps: Sequence[Dump], absent: Sequence[int], ranks: int) -> list[str]:
    """Return sentences about the dumps themselves."""
    versions = ", ".join(sorted({dump.version or "unknown" for dump in dumps}))
    backends = sorted({e.backend for dump in dumps for e in dump.entries if e.backend})
    libraries = sorted({dump.library for dump in dumps if dump.library})
    carried = f" of {', '.join(backends)}" if backends else ""
    carried += f" {', '.join(libraries)}" if libraries and backends else ""
    notes = [
        f"Flight Recorder dumps of {len(dumps)} of {counted(ranks, 'rank')}, version "
        f"{versions}{carried}; they do not tell for how long the job had stood still"
    ]
    if absent:
        it = "it" if len(absent) == 1 else "they"
        notes.append(
            f"no dump of rank{'s' if len(absent) > 1 else ''} {format_ranks(absent)}: {it} died or "
            f"could not write one, and may be what the others wait for"
        )
    lost = {dump.rank: dump.overwritten for dump in dumps if dump.overwritten}
    if lost:
        rank = max(lost, key=lambda r: lost[r])
        notes.append(
            f"the dumps hold the newest operations only (of rank {rank} the {lost[rank]:,} before "
            "are not in its dump); what is older is judged by the counters"
        )
    if len({dump.version for dump in dumps}) > 1:
        notes.append("the ranks ran different versions of torch")
    return notes


def doubts_about(dumps: Sequence[Dump], culprits: Sequence[Culprits]) -> list[str]:
    """Return why nobody is to be named though some lag behind; none where they may be."""
    behind = sorted({rank for one in culprits for rank in one.ranks})
    if not behind:
        return []
    who = f"rank{'s' if len(behind) > 1 else ''} {format_ranks(behind)}"
    if all_young(dumps):
        return [
            f"{who} had not issued what the others waited in, but all that is pending was less "
            "than 5 s old when the dumps were written, as it is in a job that runs"
        ]
    return [
        f"the newest operation of rank {rank} is {behind_ns / 1e9:,.0f} s older than what the "
        "others wait in: its dump was taken earlier than theirs, or it fell silent long before"
        for rank, behind_ns in fell_silent_before(dumps, behind)[:_TOLD_RANKS]
    ]


def facts_of(dumps: Sequence[Dump], report: Report) -> dict[str, Any]:
    """Return the object ``data.flight_recorder`` of a report (docs/formats/flight-recorder.md)."""
    pending = sum(not entry.done for dump in dumps for entry in dump.entries)
    remedy = None
    if report.verdict == "insufficient_evidence" and not pending:
        remedy = (
            "Dumps tell who is missing while a job stands. For a job that is slow record profiler "
            "traces; for one that stands, dump again meanwhile."
        )
    elif report.verdict == "insufficient_evidence":
        remedy = "Dump all ranks at one moment, a minute or more after the job stood still."
        if not report.complete:
            remedy = "Give the dumps of all ranks, taken at one moment while the job stands."
    return {
        "dumps": len(dumps),
        "versions": sorted({dump.version for dump in dumps}),
        "backends": sorted({e.backend for dump in dumps for e in dump.entries if e.backend}),
        "operations": sum(len(dump.entries) for dump in dumps),
        "pending": pending,
        "remedy": remedy,
    }


def why_nothing(dumps: Sequence[Dump], layouts: Layouts, waiting: int) -> str:
    """Return why the dumps accuse nobody."""
    if not waiting:
        return "nothing is pending"
    if len(dumps) > 1:
        return "operations are pending, and every rank had issued all of them: nobody is missing"
    (dump,) = dumps
    oldest = min((e for e in dump.entries if not e.done), key=lambda entry: entry.created_ns)
    at = layouts.of_dump[dump.rank].get(oldest.pg_id)
    group = name_of(layouts.groups[at]) if at is not None else oldest.group_name
    return (
        f"rank {dump.rank} waits in {op_name(oldest.op)} number {oldest.seq} of group {group}"
        f"{_since(oldest.created_ns)}; one dump does not tell for whom: give those of all ranks"
    )


def _since(created_ns: int) -> str:
    if created_ns <= 0 or created_ns > 4_000_000_000 * 10**9:
        return ""
    moment = datetime.fromtimestamp(created_ns // 10**9, tz=timezone.utc)
    return f" since {moment:%Y-%m-%d %H:%M:%S} UTC by its clock"
