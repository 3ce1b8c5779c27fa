"""From dumps to the report: the same diagnosis as for a job that is watched while it hangs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.errors import InputError
from paceline.ranks import format_ranks
from paceline.vocabulary import Op
from paceline_service.analysis.records import Group
from paceline_service.analysis.report import Finding, Report
from paceline_service.analysis.standstill.diagnose import Culprits, diagnose
from paceline_service.analysis.standstill.findings import Scene, finding_of_culprits
from paceline_service.analysis.standstill.waiting import Came, Waiting, waiting_of
from paceline_service.importers.faults import Faults
from paceline_service.importers.flight_recorder.dump import Dump, read_dump
from paceline_service.importers.flight_recorder.layout import Layouts, find_layouts

MAX_WORLD_SIZE = 1_000_000
_KEYS = (b"pg_status", b"collective_seq_id", b"nccl_comm_state", b"p2p_seq_id")


def begins_dump(head: bytes) -> bool:
    """Whether a file with these first bytes is a Flight Recorder dump, as pickle or JSON."""
    if b'"traceEvents"' in head or not any(key in head for key in _KEYS):
        return False
    return head[:1] == b"\x80" or head.lstrip()[:1] == b"{"


def read_dumps(paths: Sequence[Path], faults: Faults) -> Report:
    """Return the report on the job that these dumps are of.

    A dump that cannot be read is left out and told, as long as there are others.

    Raises:
        InputError: none can be read, or they are not of one job.
    """
    dumps: dict[int, Dump] = {}
    problems: list[str] = []
    for path in paths:
        try:
            dump = read_dump(path)
        except InputError as error:
            problems.append(str(error))
            faults.add("unusable_file", path, None, str(error).removeprefix(f"{path}: "))
            continue
        other = dumps.setdefault(dump.rank, dump)
        if other is not dump:
            raise InputError(
                f"{path} and {other.path} are both of rank {dump.rank}; give one dump per rank"
            )
    if not dumps:
        raise InputError(problems[0] if problems else "there is no Flight Recorder dump")
    return _report(list(dumps.values()), faults)


def _report(dumps: list[Dump], faults: Faults) -> Report:
    layouts = find_layouts(dumps)
    known = {dump.rank for dump in dumps}
    world_size = 1 + max([*known, *(rank for ranks in layouts.members for rank in ranks)])
    if world_size > MAX_WORLD_SIZE:
        raise InputError(f"rank {world_size - 1}; at most {MAX_WORLD_SIZE} ranks are read")
    named = {rank for _, ranks in (g for d in dumps for g in d.groups.values()) for rank in ranks}
    absent = sorted(named - known)
    culprits, waiting = _find(dumps, layouts, world_size, known)
    notes = [
        f"Flight Recorder dumps of {len(known)} of {len(named | known)} ranks, version "
        f"{', '.join(sorted({dump.version for dump in dumps}))}; they do not tell for how long "
        "the job had stood still"
    ]
    scene = Scene(
        groups=[Group(name=desc or name, ranks=ranks) for name, desc, ranks in layouts.groups],
        nodes={},
        places=_places(dumps),
        without_dump=frozenset(absent),
    )
    findings: list[Finding] = [finding_of_culprits(one, waiting, scene) for one in culprits]
    if absent:
        notes.append(f"no dump of rank {format_ranks(absent)}: it died or could not write one")
    if not findings:
        notes.append(
            "nothing is pending" if not len(waiting) else
            "collectives are pending, and every rank had issued all of them: nobody is missing"
        )  # fmt: skip
    lost = dict(faults.counts) if faults.lossy else {}
    verdict = "insufficient_evidence"
    if findings:
        kinds = [finding.kind for finding in findings]
        verdict = "hang" if "hang" in kinds else kinds[0]
    return Report(
        world_size=world_size, ranks_observed=len(known), steps=0,
        collectives=sum(len(dump.entries) for dump in dumps), verdict=verdict, slowdown=None,
        idle_ratio=None, gamma=None, wasted_gpu_s=None, findings=findings,
        complete=not absent and not faults.lossy, dropped=lost, ranks=[], notes=notes,
    )  # fmt: skip


def _find(
    dumps: list[Dump], layouts: Layouts, world_size: int, known: set[int]
) -> tuple[list[Culprits], Waiting]:
    """Return the culprits: of ranks that dumped, else of those that did not."""
    directed = {
        layouts.of_dump[dump.rank].get(entry.pg_id, -1)
        for dump in dumps for entry in dump.entries if entry.is_p2p
    }  # fmt: skip
    directed |= {
        at for at, (_, desc, _) in enumerate(layouts.groups) if "PIPELINE_MODEL_PARALLEL" in desc
    }
    came = _came(dumps, layouts, directed)
    collectives, pairs = _waiting(dumps, layouts, directed)
    there = [np.array([r for r in ranks if r in known]) for ranks in layouts.members]
    everyone = [np.array(ranks) for ranks in layouts.members]
    waiting = waiting_of(collectives)
    # Sends and receives count each for itself, so they accuse only where nothing else does; and
    # a rank without a dump is suspected only where no other explains the rest.
    for rows, members in (
        (collectives, there), (collectives + pairs, there), (collectives + pairs, everyone),
    ):  # fmt: skip
        waiting = waiting_of(rows)
        if found := diagnose(waiting, came, members, world_size, 0):
            return found, waiting
    return [], waiting


def _came(dumps: list[Dump], layouts: Layouts, directed: set[int]) -> Came:
    rows = []
    for dump in dumps:
        mine = layouts.of_dump[dump.rank]
        for number, at in mine.items():
            if at in directed:
                continue
            issued, finished = dump.counters.get(number, (-1, -1))
            entries = [e for e in dump.entries if e.pg_id == number and not e.is_p2p]
            issued = max([issued, *(e.seq for e in entries)])
            finished = max([finished, *(e.seq for e in entries if e.done)])
            rows.append((dump.rank, at, issued, finished))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Came(rank=table[:, 0], group=table[:, 1], issued=table[:, 2], released=table[:, 3])


def _waiting(
    dumps: list[Dump], layouts: Layouts, directed: set[int]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """Return the pending collectives, and the pending sends and receives."""
    collectives: list[tuple[int, ...]] = []
    pairs: list[tuple[int, ...]] = []
    for dump in dumps:
        for entry in dump.entries:
            at = layouts.of_dump[dump.rank].get(entry.pg_id)
            if entry.done or at is None:
                continue
            row = (dump.rank, at, int(entry.op), entry.seq, -1, -1, entry.payload_bytes, -1)
            if not entry.is_p2p and at not in directed:
                collectives.append(row)
            elif entry.pair is not None and entry.op in (Op.SEND, Op.RECV):
                ranks = layouts.groups[at][2]
                peer = entry.pair[1]
                if peer < len(ranks):
                    # Their numbers count positions: two sides are a pair when both are pending.
                    pairs.append((*row[:3], 0, -1, ranks[peer], entry.payload_bytes, -1))
    return collectives, pairs


def _places(dumps: list[Dump]) -> dict[int, str]:
    """Return where in its code each rank issued its newest operation, as far as it is told."""
    places = {}
    for dump in dumps:
        newest = max(dump.entries, key=lambda entry: entry.created_ns, default=None)
        if newest is not None and newest.place:
            places[dump.rank] = newest.place
    return places
