"""Every synchronization that Paceline measured, told by stretch and bucket.

The collectives of all ranks are matched and their waits measured by the code that judges jobs
(docs/math/matching.md, docs/math/waits.md); the manifest says which bucket each of them carried.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from paceline.vocabulary import BARRIER_LIKE_OPS, Flag, Op, Phase, RecordKind, op_name, phase_name
from paceline_service.analysis.blame.waits import measure_waits
from paceline_service.analysis.matching.groups import members_of
from paceline_service.analysis.matching.match import match
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import BoolArray, Group
from paceline_service.importers.events import read_event_log
from paceline_service.lab.plans import Bucket, Call, Manifest, Stretch

_PASSES = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_GRADIENT_OPS = frozenset(op_name(op) for op in (Op.ALL_REDUCE, Op.ALL_GATHER, Op.REDUCE_SCATTER))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """One collective over all ranks, ns; ``arrival_ns`` counts from the begin of its step.

    Attributes:
        step: as Paceline counts.
        stretch: name of the stretch, empty for the transfers that are measured alone.
        op: operation, as in event logs.
        call: which synchronization of the plan it is; None for what no gradient needs.
        bucket: what it carried.
        payload_bytes: the whole buffer.
        arrival_ns: of each rank.
        last_rank: who came last, -1 where all came together.
        wait_ns: for how long each rank's data lay there until the last came.
        still_ns: for how long each rank did nothing but wait for the end of this one.
        transfer_ns: from the last arrival to the first release; -1 unknown.
        bound: the end was seen late: the transfer took that long at most.
    """

    step: int
    stretch: str
    op: str
    call: Call | None
    bucket: Bucket | None
    payload_bytes: int
    arrival_ns: tuple[int, ...]
    last_rank: int
    wait_ns: tuple[int, ...]
    still_ns: tuple[int, ...]
    transfer_ns: int
    bound: bool

    @property
    def exposed_ns(self) -> int:
        """How long even the last rank did nothing but wait for the transfer."""
        least = min(self.still_ns)
        # Who is woken late stands still longer than the transfer takes.
        return min(least, self.transfer_ns) if self.transfer_ns >= 0 else least


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured in one run of the lab.

    Attributes:
        syncs: those of training, in order of time.
        probe: those that were measured alone.
        step_ns: by step, its duration on the rank where it was longest.
        phases_ns: by step and name of a phase, the mean of the ranks.
        passes_ns: by step, when forward, backward and optimizer were, from the first rank that
            began to the last that ended, counted like arrivals.
    """

    syncs: list[Sync]
    probe: list[Sync]
    step_ns: dict[int, int]
    phases_ns: dict[int, dict[str, float]]
    passes_ns: dict[int, dict[str, tuple[int, int]]]

    def of(self, stretch: Stretch, skip: int = 0) -> list[Sync]:
        """Return the planned synchronizations of a stretch without its first ``skip`` steps."""
        return [
            sync
            for sync in self.syncs
            if sync.call is not None
            and sync.stretch == stretch.name
            and sync.step >= stretch.first_step + skip
        ]


def read_measured(path: Path, manifest: Manifest) -> Measured:
    """Return what the event log at ``path`` says of the run that ``manifest`` describes."""
    with read_event_log([path]) as log:
        groups = [Group(name=g.name, ranks=g.ranks, epoch=g.epoch) for g in log.groups]
        table = stack([as_table(records) for round_ in log.rounds() for records in round_])
    # One node, one clock: arrivals are compared directly.
    clock = np.zeros(manifest.ranks, dtype=np.int64)
    begin = _step_begins(table)
    probe_group = [group.name for group in groups].index(manifest.probe_group)
    matches = match(table, members_of(groups), clock)
    waits = measure_waits(matches, clock, np.zeros(len(groups), dtype=np.int64))
    rows = matches.rows
    syncs: list[Sync] = []
    probe: list[Sync] = []
    ends = np.append(matches.first, len(rows))
    for number in np.argsort(rows.start_ns[matches.first], kind="stable").tolist():
        low, high = int(ends[number]), int(ends[number + 1])
        op = Op(int(rows.code[low]))
        if not matches.complete[number] or op not in BARRIER_LIKE_OPS:
            continue
        step = int(rows.step[low])
        start = rows.start_ns[low:high]
        last = int(start.max())
        sync = Sync(
            step=step,
            stretch="",
            op=op_name(op),
            call=None,
            bucket=None,
            payload_bytes=int(rows.payload_bytes[low:high].max()),
            arrival_ns=tuple((start - begin.get(step, last)).tolist()),
            last_rank=int(waits.last_rank[number]),
            wait_ns=tuple((last - start).tolist()),
            still_ns=tuple(waits.exposed_ns[low:high].tolist()),
            transfer_ns=int(waits.transfer_ns[number]),
            bound=bool((rows.flags[low:high] & Flag.RELEASE_POLLED).any()),
        )
        (probe if rows.group[low] == probe_group else syncs).append(sync)
    steps, phases, passes = _durations(table, begin)
    return Measured(
        syncs=_named(syncs, manifest.stretches),
        probe=probe,
        step_ns=steps,
        phases_ns=phases,
        passes_ns=passes,
    )


def _named(syncs: list[Sync], stretches: Sequence[Stretch]) -> list[Sync]:
    """Give every synchronization its stretch, its call and its bucket."""
    by_step: dict[int, list[Sync]] = {}
    for sync in syncs:
        by_step.setdefault(sync.step, []).append(sync)
    return [
        sync
        for stretch in stretches
        for step in range(stretch.first_step, stretch.last_step + 1)
        for sync in _named_in_step(by_step.get(step, []), stretch, step)
    ]


def _named_in_step(syncs: list[Sync], stretch: Stretch, step: int) -> Iterator[Sync]:
    """Name those of one step: of each operation the last ones are the plan's, in its order.

    What a step has before them made the model parallel, or judged it on unseen sentences.
    """
    plan = stretch.plan_of(step)
    buckets = {bucket.bucket: bucket for bucket in plan.buckets}
    calls: dict[int, Call] = {}
    for op in _GRADIENT_OPS:
        planned = [call for call in plan.calls if call.op == op]
        found = [number for number, sync in enumerate(syncs) if sync.op == op]
        if len(found) >= len(planned):
            calls.update(zip(found[len(found) - len(planned) :], planned, strict=True))
    for number, sync in enumerate(syncs):
        call = calls.get(number)
        yield _with(sync, stretch.name, call, buckets[call.bucket] if call is not None else None)


def _with(sync: Sync, stretch: str, call: Call | None, bucket: Bucket | None) -> Sync:
    return replace(sync, stretch=stretch, call=call, bucket=bucket)


def _step_begins(table: Table) -> dict[int, int]:
    """Return when each step began, ns: the earliest record of it on any rank."""
    kept = table.start_ns > 0
    steps, where = np.unique(table.step[kept], return_inverse=True)
    begin = np.full(len(steps), np.iinfo(np.int64).max)
    np.minimum.at(begin, where.reshape(-1), table.start_ns[kept])
    return dict(zip(steps.tolist(), begin.tolist(), strict=True))


def _durations(
    table: Table, begin: dict[int, int]
) -> tuple[dict[int, int], dict[int, dict[str, float]], dict[int, dict[str, tuple[int, int]]]]:
    """Return durations of steps and phases, and when the passes were, all by step."""
    ranks = len(np.unique(table.rank))
    steps: dict[int, int] = {}
    phases: dict[int, dict[str, float]] = {}
    passes: dict[int, dict[str, tuple[int, int]]] = {}
    known = (table.start_ns > 0) & (table.end_ns >= table.start_ns)
    for kind, code, step, start, end in _columns(table, known):
        if kind == RecordKind.STEP:
            steps[step] = max(steps.get(step, 0), end - start)
        elif kind == RecordKind.PHASE:
            name = phase_name(Phase(code))
            of_step = phases.setdefault(step, {})
            of_step[name] = of_step.get(name, 0.0) + (end - start) / ranks
            if code in _PASSES:
                low, high = start - begin[step], end - begin[step]
                was = passes.setdefault(step, {}).get(name, (low, high))
                passes[step][name] = (min(low, was[0]), max(high, was[1]))
    return steps, phases, passes


def _columns(table: Table, known: BoolArray) -> Iterator[tuple[int, int, int, int, int]]:
    columns = (table.kind, table.code, table.step, table.start_ns, table.end_ns)
    return zip(*(column[known].tolist() for column in columns), strict=True)
