"""Records of NCCL Inspector as the log of a job (docs/formats/nccl-inspector.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from paceline.counted import counted
from paceline.errors import InputError
from paceline.event_log import ROW_FIELDS, LogGroup
from paceline.vocabulary import RecordKind
from paceline_service.analysis.records import Int64Array
from paceline_service.analysis.report import Finding, Report
from paceline_service.importers.faults import Faults
from paceline_service.importers.log import EventLog
from paceline_service.importers.nccl_inspector.instances import Instances, pair
from paceline_service.importers.nccl_inspector.layout import lay_out
from paceline_service.importers.nccl_inspector.moments import (
    LEAST_DUMPS,
    TRACED,
    UNTIMED,
    Moments,
    find_moments,
)
from paceline_service.importers.nccl_inspector.processes import RankMap, map_ranks
from paceline_service.importers.nccl_inspector.records import (
    KERNEL_GPU,
    UNTOLD,
    Recorded,
    read_records,
)
from paceline_service.importers.nccl_inspector.steps import Steps, assign_steps
from paceline_service.importers.nccl_inspector.strays import without_strays
from paceline_service.importers.nccl_inspector.transfers import (
    FLAGS,
    Stays,
    laid_stays,
    most_per_step,
    traced_stays,
)
from paceline_service.importers.nccl_inspector.victims import waited, without_victims
from paceline_service.importers.spool import WIDTH

GPU_NOISE_NS, CPU_NOISE_NS = 10_000, 200_000
"""How exactly a duration is known: to a few us by the GPU's timer, else as often as NCCL's proxy
thread looks at its kernels."""
_NEED_TIMES = frozenset({"communication_bound", "uniform_slowdown"})
"""Kinds that are told from what lies between collectives."""
_RATIOS = ("(gamma)", "% shorter", "own time per step")
"""Marks of sentences that compare with what lies between them."""
_COLUMN = {name: index for index, name in enumerate(ROW_FIELDS)}


def read_inspector(paths: Sequence[Path], faults: Faults) -> EventLog:
    """Read the files of one job.

    Raises:
        InputError: they hold no records, are of several jobs, or do not tell who is who.
    """
    recorded = without_strays(read_records(paths, faults), faults)
    ranks = map_ranks(recorded, faults)
    instances = pair(recorded, ranks, faults)
    log = EventLog(world_size=ranks.world_size, faults=faults, nodes=dict(ranks.hosts))
    log.world_size_told = False  # a communicator may be a part of the job
    log.groups = _groups(recorded, ranks)
    moments = find_moments(recorded)
    notes = [*ranks.notes, *_notes(recorded, instances, moments)]
    if not instances.comparable.any():
        _lone_rows(log, recorded, ranks)
        log.finish = lambda report: _finished(report, moments, ranks, notes)
        return log
    steps = assign_steps(recorded, instances, moments, ranks.hosts)
    notes.append(_about_steps(steps))
    _rows(log, recorded, ranks, instances, steps, moments)
    cpu = np.isin(recorded.column("source"), (KERNEL_GPU, UNTOLD), invert=True)
    polled = np.unique(recorded.column("comm")[cpu])
    for index in range(len(log.groups)):
        log.noise_ns[index] = CPU_NOISE_NS if index in polled else GPU_NOISE_NS
    waits = waited(
        instances, recorded.column("exec_ns")[instances.row], ranks.members, ranks.world_size
    )

    def finish(report: Report) -> Report:
        if moments.known != TRACED:
            report = replace(report, findings=without_victims(report.findings, waits))
        return _finished(report, moments, ranks, notes)

    log.finish = finish
    return log


def _groups(recorded: Recorded, ranks: RankMap) -> list[LogGroup]:
    """Return a group for each communicator; one that was made again is of another epoch."""
    made: dict[tuple[str, tuple[int, ...]], int] = {}
    groups = []
    for communicator, members in zip(recorded.communicators, ranks.members, strict=True):
        # Who is not there has no number; the group is then of those who are, and is not used.
        key = (communicator.name or communicator.id, tuple(map(int, members[members >= 0])))
        epoch = made[key] = made.get(key, -1) + 1
        groups.append(LogGroup(name=key[0], ranks=key[1], epoch=epoch))
    return groups


def _rows(
    log: EventLog,
    recorded: Recorded,
    ranks: RankMap,
    instances: Instances,
    steps: Steps,
    moments: Moments,
) -> None:
    exec_ns = recorded.column("exec_ns")[instances.row]
    around_ns = moments.around_ns[instances.row]
    if moments.known == TRACED:
        # What is incomplete takes its time too, but nobody is compared in it.
        whole = np.array([bool((members >= 0).all()) for members in ranks.members])
        chosen = np.flatnonzero(whole[instances.comm[instances.instance]])
        begin, end = _traced(recorded, instances.row)
        order = np.lexsort((instances.sn, steps.of_instance))
    else:
        room_ns = most_per_step(recorded, ranks.rank_of_row, steps, moments)
        axis = lay_out(
            instances, steps, exec_ns, around_ns, timed=moments.known != UNTIMED, room_ns=room_ns
        )
        chosen = np.flatnonzero(instances.comparable[instances.instance])
        begin, end, order = axis.begin_ns, axis.end_ns, axis.order
    seq = _numbered(instances, order)
    instance = instances.instance[chosen]
    table = np.zeros((len(chosen), WIDTH), dtype=np.int64)
    table[:, _COLUMN["kind"]] = RecordKind.COLLECTIVE
    table[:, _COLUMN["code"]] = instances.op[instance]
    table[:, _COLUMN["group"]] = instances.comm[instance]
    table[:, _COLUMN["seq"]] = seq[instance]
    table[:, _COLUMN["step"]] = steps.of_instance[instance]
    table[:, _COLUMN["peer"]] = -1
    table[:, _COLUMN["payload_bytes"]] = instances.payload_bytes[instance]
    table[:, _COLUMN["start_ns"]] = begin[chosen]
    table[:, _COLUMN["end_ns"]] = end[chosen]
    # Whether compute ran beside it is not told: who was in a collective is taken to have waited.
    table[:, _COLUMN["join_ns"]] = begin[chosen]
    rank = instances.rank[chosen]
    if (recorded.column("peer") >= 0).any():
        if moments.known == TRACED:
            stays = traced_stays(recorded, ranks.rank_of_row, steps, moments)
        else:
            free = _before_first(rank, table)
            stays = laid_stays(recorded, ranks.rank_of_row, steps, moments, free)
        table = np.concatenate([table, _stay_rows(log, stays)])
        rank = np.concatenate([rank, stays.rank])
    _keep(log, rank, table)


def _before_first(rank: Int64Array, table: Int64Array) -> list[Int64Array]:
    """Return rank, step, begin and end of what lies before each rank's first row of each step."""
    step = table[:, _COLUMN["step"]]
    begin, end = table[:, _COLUMN["start_ns"]], table[:, _COLUMN["end_ns"]]
    by = np.lexsort((begin, step, rank))
    new = np.ones(len(by), dtype=np.bool_)
    new[1:] = (rank[by[1:]] != rank[by[:-1]]) | (step[by[1:]] != step[by[:-1]])
    first = by[new]
    last_end = np.maximum.reduceat(end[by], np.flatnonzero(new))
    before = np.append(0, last_end[:-1])
    other = np.append(True, rank[first[1:]] != rank[first[:-1]])
    before = np.where(other, begin[first], before)  # nothing is known before the very first
    return [rank[first], step[first], before, begin[first]]


def _stay_rows(log: EventLog, stays: Stays) -> Int64Array:
    """Return rows of sends and receives: each rank is in a group of its own."""
    ranks, of = np.unique(stays.rank, return_inverse=True)
    base = len(log.groups)
    log.groups += [LogGroup(name=f"p2p.{rank}", ranks=(rank,)) for rank in ranks.tolist()]
    table = np.zeros((len(of), WIDTH), dtype=np.int64)
    table[:, _COLUMN["kind"]] = RecordKind.COLLECTIVE
    table[:, _COLUMN["group"]] = base + of.reshape(-1)
    table[:, _COLUMN["seq"]] = np.arange(len(of))
    table[:, _COLUMN["step"]] = stays.step
    table[:, _COLUMN["peer"]] = -1
    table[:, _COLUMN["start_ns"]] = table[:, _COLUMN["join_ns"]] = stays.begin_ns
    table[:, _COLUMN["end_ns"]] = stays.end_ns
    table[:, _COLUMN["flags"]] = FLAGS
    return table


def _traced(recorded: Recorded, row: NDArray[np.intp]) -> tuple[Int64Array, Int64Array]:
    """Return begin and end by the host's clock; the GPU's own duration where it is known."""
    begin, end = recorded.column("begin_us")[row] * 1000, recorded.column("end_us")[row] * 1000
    by_gpu = recorded.column("source")[row] == KERNEL_GPU
    return np.where(by_gpu, end - recorded.column("exec_ns")[row], begin), end


def _numbered(instances: Instances, order: NDArray[np.intp]) -> Int64Array:
    """Return (I,) the place of each in its communicator, over all functions; -1 where not laid."""
    seq = np.full(len(instances), -1, dtype=np.int64)
    by = order[np.argsort(instances.comm[order], kind="stable")]
    comm = instances.comm[by]
    begin = np.searchsorted(comm, comm)
    seq[by] = np.arange(len(by)) - begin
    return seq


def _keep(log: EventLog, rank: Int64Array, table: Int64Array) -> None:
    """Put rows into the log, each rank's by step and time."""
    by = np.lexsort((table[:, _COLUMN["start_ns"]], table[:, _COLUMN["step"]], rank))
    rank, table = rank[by], table[by]
    for part in np.split(np.arange(len(rank)), np.flatnonzero(np.diff(rank)) + 1):
        if not len(part):
            continue
        one, mine = int(rank[part[0]]), table[part]
        log.spool.replace(one, mine)
        first_ns = int(mine[:, _COLUMN["start_ns"]].min())
        log.extents[one] = (first_ns, int(mine[:, _COLUMN["end_ns"]].max()))
        log.anchors[one] = (first_ns, first_ns)


def _lone_rows(log: EventLog, recorded: Recorded, ranks: RankMap) -> None:
    """Keep what there is of a job in which nothing can be paired, so that it is told as seen."""
    here = np.flatnonzero(ranks.rank_of_row >= 0)
    if not len(here):
        raise InputError("no record tells which rank it is of")
    rank = ranks.rank_of_row[here]
    table = np.zeros((len(here), WIDTH), dtype=np.int64)
    table[:, _COLUMN["kind"]] = RecordKind.COLLECTIVE
    table[:, _COLUMN["code"]] = recorded.column("op")[here]
    table[:, _COLUMN["group"]] = recorded.column("comm")[here]
    table[:, _COLUMN["seq"]] = recorded.column("sn")[here]
    table[:, _COLUMN["peer"]] = -1
    end = np.maximum(
        recorded.column("dumped_us")[here] * 1000, 1 + recorded.column("exec_ns")[here]
    )
    table[:, _COLUMN["end_ns"]] = end
    table[:, _COLUMN["start_ns"]] = end - recorded.column("exec_ns")[here]
    collective = recorded.column("peer")[here] < 0
    _keep(log, rank[collective], table[collective])


def _notes(recorded: Recorded, instances: Instances, moments: Moments) -> list[str]:
    notes = []
    polled = int((recorded.column("source") != KERNEL_GPU).sum())
    if polled:
        notes.append(
            f"{polled:,} of {len(recorded):,} durations are not by the GPU's timer: NCCL's proxy "
            "thread saw the kernel begin and end, and looks only now and then."
        )
    left = int((instances.complete & ~instances.comparable).sum())
    if left and moments.known != TRACED:
        notes.append(
            f"Left out: {counted(left, 'collective')} whose members do not leave together "
            "(broadcast, reduce), or without a kernel's time."
        )
    p2p = int((recorded.column("peer") >= 0).sum())
    if p2p:
        notes.append(
            f"{p2p:,} sends and receives count as communication, and nobody is blamed in them: "
            "their numbers count on one process alone, so nothing says which belong together."
        )
    return notes


def _about_steps(steps: Steps) -> str:
    number = len(steps.end_ns)
    if steps.proved:
        return (
            f"Steps are derived: the sizes of {steps.pace} repeat every {steps.period} "
            f"({number} times)."
        )
    return (
        f"There are no steps: the sizes of {steps.pace} do not tell any, so windows of "
        f"{steps.period} stand for them."
    )


def _finished(report: Report, moments: Moments, ranks: RankMap, notes: list[str]) -> Report:
    """Add what the format tells, and take back what it cannot: ratios to times it does not know."""
    notes = [*report.notes, *notes]
    findings = [_with_process(finding, ranks) for finding in report.findings]
    if moments.known != UNTIMED:
        return replace(report, notes=notes, findings=findings)
    notes.append(
        f"The lines were written in fewer than {LEAST_DUMPS} dumps, so when a collective was is "
        "not known: who waited for whom is told, but no ratio to the time of a step, and not "
        "whether communication bounds the job."
    )
    told = [note for note in notes if not any(ratio in note for ratio in _RATIOS)]
    findings = [
        replace(
            finding,
            slowdown=None,
            recoverable_ratio=None,
            evidence=[s for s in finding.evidence if not any(ratio in s for ratio in _RATIOS)],
        )
        for finding in findings
        if finding.kind not in _NEED_TIMES
    ]
    verdict = report.verdict
    if verdict in _NEED_TIMES:
        verdict = findings[0].kind if findings else "healthy"
    return replace(
        report, notes=told, findings=findings, verdict=verdict, slowdown=None, idle_ratio=None,
        gamma=None, what_if=None, expected=None, calibration=None,
    )  # fmt: skip


def _with_process(finding: Finding, ranks: RankMap) -> Finding:
    told = [
        f"rank {rank} is {ranks.names[rank]}" for rank in finding.ranks[:8] if rank in ranks.names
    ]
    return replace(finding, evidence=[*finding.evidence, *told])
