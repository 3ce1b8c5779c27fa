"""Rows from the network that the analysis must not meet are taken out here, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paceline.vocabulary import Op, Phase, RecordKind
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import BoolArray, Columns, Int64Array, Records

MAX_STEP = 1 << 40
MAX_TIME_NS = 1 << 62
_COLLECTIVE, _PHASE, _STEP = (
    int(kind) for kind in (RecordKind.COLLECTIVE, RecordKind.PHASE, RecordKind.STEP)
)
_OPS, _PHASES = len(Op), len(Phase)
_UNKNOWN_OP = int(Op.UNKNOWN)


def sanitize(
    records: Records, group_of_local: Int64Array, step_base: int, world_size: int
) -> tuple[Records, Counter[str]]:
    """Return the usable rows with job-wide groups and steps, and counts of the others by reason.

    Args:
        records: N rows of one rank; ``group`` is the rank's own number.
        group_of_local: shape (G,), the job-wide group of each local number, -1 unknown.
        step_base: is added to every step.
        world_size: R; peers must be below it.
    """
    local = _below(records.group, len(group_of_local))
    named = np.full(len(records), -1, dtype=np.int64)
    named[local] = group_of_local[records.group[local]]
    usable, code, job_group, faults = _judge(records, named, world_size)
    dropped = Counter({reason: int(rows.sum()) for reason, rows in faults.items()})
    clean = replace(records, code=code, group=job_group, step=records.step + step_base)
    return (clean.take(usable) if dropped else clean), dropped


def sanitize_frames(
    table: Table,
    counts: Int64Array,
    groups_of_local: Sequence[Int64Array],
    step_bases: Int64Array,
    world_size: int,
) -> tuple[Table, dict[int, Counter[str]]]:
    """Do for the rows of F frames, one after the other, what ``sanitize`` does for one.

    Args:
        table: N rows.
        counts: (F,) rows of each frame.
        groups_of_local: per frame the job-wide groups of its rank's local numbers.
        step_bases: (F,) is added to every step of the frame.
        world_size: R; peers must be below it.

    Returns:
        The usable rows, and what was dropped, by frame where anything was.
    """
    sizes = np.array([len(one) for one in groups_of_local], dtype=np.int64)
    size = np.repeat(sizes, counts)
    local = table.group.view(np.uint64) < size.view(np.uint64)
    every = np.concatenate(groups_of_local)
    at = np.repeat(np.cumsum(sizes) - sizes, counts) + table.group
    if local.all():
        named = every[at] if len(at) else at
    else:
        named = np.full(len(table), -1, dtype=np.int64)
        named[local] = every[at[local]]
    usable, code, job_group, faults = _judge(table, named, world_size)
    step = table.step + np.repeat(step_bases, counts) if step_bases.any() else table.step
    clean = replace(table, code=code, group=job_group, step=step)
    if not faults:
        return clean, {}
    frame = np.repeat(np.arange(len(counts)), counts)
    dropped: dict[int, Counter[str]] = {}
    for reason, rows in faults.items():
        lost = np.bincount(frame[rows], minlength=len(counts))
        for number in np.flatnonzero(lost).tolist():
            dropped.setdefault(number, Counter())[reason] = int(lost[number])
    return clean.take(usable), dropped


def _judge(
    rows: Columns, named_group: Int64Array, world_size: int
) -> tuple[BoolArray, Int64Array, Int64Array, dict[str, BoolArray]]:
    """Return which rows are usable, their codes and groups, and why others are not, (N,) each.

    Args:
        rows: N rows.
        named_group: (N,) the job-wide group that each names, -1 where that is unknown.
        world_size: R.
    """
    kind, code = rows.kind, rows.code
    collective, phase = kind == _COLLECTIVE, kind == _PHASE
    known_kind = collective | phase | (kind == _STEP)
    in_range = (
        _below(rows.step, MAX_STEP)
        & _below(rows.start_ns - 1, MAX_TIME_NS - 1)
        & _below(rows.end_ns, MAX_TIME_NS)
        & _below(rows.peer + 1, world_size + 1)
        & (~phase | _below(code, _PHASES))
        & (~collective | ((rows.seq | rows.payload_bytes) >= 0))
    )
    job_group = np.where(collective, named_group, 0)
    known_group = job_group >= 0
    usable = known_kind & in_range & known_group
    odd = collective & ~_below(code, _OPS)
    if odd.any():
        code = np.where(odd, _UNKNOWN_OP, code)
    if usable.all():
        return usable, code, job_group, {}
    faults = {
        "unknown_kind": ~known_kind,
        "out_of_range": known_kind & ~in_range,
        "unknown_group": known_kind & in_range & ~known_group,
    }
    return usable, code, job_group, {name: fault for name, fault in faults.items() if fault.any()}


def _below(values: Int64Array, limit: int) -> BoolArray:
    """Return where ``0 <= value < limit``, in one pass."""
    return values.view(np.uint64) < np.uint64(limit)
