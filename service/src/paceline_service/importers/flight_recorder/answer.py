"""From dumps to the report: the same diagnosis as for a job that is watched while it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from paceline.errors import InputError
from paceline_service.analysis.records import Group
from paceline_service.analysis.report import Finding, RankRows, Report
from paceline_service.analysis.standstill.diagnose import DIFFERENT, Culprits
from paceline_service.analysis.standstill.findings import Scene, finding_of_culprits
from paceline_service.analysis.standstill.waiting import Waiting
from paceline_service.importers.answer import Answer
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.arrivals import (
    arrivals_of,
    facts_of_arrivals,
    told,
)
from paceline_service.importers.flight_recorder.dump import Dump
from paceline_service.importers.flight_recorder.layout import Layouts, find_layouts, name_of
from paceline_service.importers.flight_recorder.mismatch import Mismatch, mismatches
from paceline_service.importers.flight_recorder.reading import read_all
from paceline_service.importers.flight_recorder.suspects import find_suspects
from paceline_service.importers.flight_recorder.tell import (
    doubts_about,
    facts_of,
    finding_of_mismatch,
    notes_of,
    places_of,
    why_nothing,
)
from paceline_service.importers.limits import MAX_RANKS


def judge_dumps(paths: Sequence[Path], faults: Faults) -> Answer:
    """Return the answer for the dumps of one job; errors are those of ``read_dumps``."""
    dumps = _read(paths, faults)
    layouts = find_layouts(dumps)
    report = _report(dumps, layouts, faults)
    arrivals = arrivals_of(dumps, layouts, report.world_size)
    report = replace(report, notes=[*report.notes, *told(arrivals)])
    result = report.to_dict()
    result["data"]["flight_recorder"] = {
        **facts_of(dumps, report), "last_arrivers": facts_of_arrivals(arrivals)
    }  # fmt: skip
    # The default group is everybody; other groups are parts of the job.
    told_size = any(desc == "default_pg" and ranks for _, desc, ranks in layouts.groups)
    return Answer(report=result, faults=faults, world_size_told=told_size)


def read_dumps(paths: Sequence[Path], faults: Faults) -> Report:
    """Return the report on the job that these dumps are of.

    Raises:
        InputError: none can be read, or they are not of one job.
    """
    dumps = _read(paths, faults)
    return _report(dumps, find_layouts(dumps), faults)


def _read(paths: Sequence[Path], faults: Faults) -> list[Dump]:
    """Return one dump a rank; one that cannot be read is left out, as long as there are others."""
    dumps: dict[int, Dump] = {}
    problems: list[str] = []
    for path, read in read_all(paths, faults):
        if isinstance(read, InputError):
            problems.append(str(read))
            faults.add("unusable_file", path, None, str(read).removeprefix(f"{path}: "))
            continue
        dump = read
        other = dumps.setdefault(dump.rank, dump)
        if other is dump:
            continue
        if (other.entries, other.counters) == (dump.entries, dump.counters):
            faults.add("skipped_file", path, None, f"left out: the same dump as {other.path}")
            continue
        raise InputError(
            f"{path} and {other.path} are both of rank {dump.rank}; give one dump per rank, all "
            "of one moment"
        )
    if not dumps:
        raise InputError(problems[0] if problems else "there is no Flight Recorder dump")
    return list(dumps.values())


def _report(dumps: list[Dump], layouts: Layouts, faults: Faults) -> Report:
    known = {dump.rank for dump in dumps}
    named = {rank for _, ranks in (g for d in dumps for g in d.groups.values()) for rank in ranks}
    named |= {rank for ranks in layouts.members for rank in ranks}
    world_size = 1 + max(known | named)
    if world_size > MAX_RANKS:
        raise InputError(f"rank {world_size - 1}; at most {MAX_RANKS} ranks are read")
    absent = sorted(named - known)
    odd = mismatches(dumps, layouts)
    culprits, waiting = find_suspects(dumps, layouts, world_size, known, named)
    culprits = _without_mismatched(culprits, waiting, odd)
    notes = notes_of(dumps, absent, len(known | named))
    doubts = doubts_about(dumps, culprits)
    if doubts:
        notes, culprits = [*notes, *doubts], []
    scene = Scene(
        groups=[Group(name=name_of(key), ranks=key[2]) for key in layouts.groups],
        nodes={},
        places=places_of(dumps),
        without_dump=frozenset(absent),
    )
    findings: list[Finding] = [finding_of_mismatch(one, layouts, dumps) for one in odd]
    findings += [finding_of_culprits(one, waiting, scene) for one in culprits]
    if not findings and not doubts:
        notes.append(why_nothing(dumps, layouts, len(waiting)))
    lost = dict(faults.counts) if faults.lossy else {}
    verdict = "insufficient_evidence"
    if findings:
        kinds = [finding.kind for finding in findings]
        verdict = "hang" if "hang" in kinds else kinds[0]
    return Report(
        world_size=world_size, ranks_observed=len(known), steps=0,
        collectives=sum(len(dump.entries) for dump in dumps), verdict=verdict, slowdown=None,
        idle_ratio=None, gamma=None, wasted_gpu_s=None, findings=findings,
        complete=not absent and not faults.lossy, dropped=lost, ranks=RankRows.none(), notes=notes,
    )  # fmt: skip


def _without_mismatched(
    culprits: list[Culprits], waiting: Waiting, odd: list[Mismatch]
) -> list[Culprits]:
    """Leave out what a mismatch explains: who differs also did not come to what is after it."""
    groups = {one.group for one in odd}
    different = {rank for one in odd if one.pending for rank in one.ranks}
    return [
        one
        for one in culprits
        if not (one.manner == DIFFERENT and int(waiting.group[one.row]) in groups)
        and not set(one.ranks) <= different
    ]
