"""Collectives, phases and steps of a trace as rows of an event log, whole arrays at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paceline.dataclass import dataclass
from paceline.event_log import ROW_FIELDS
from paceline.vocabulary import Flag, RecordKind
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto.order import Paired
from paceline_service.importers.kineto.rank import RankTimeline

_COLUMN = {name: number for number, name in enumerate(ROW_FIELDS)}
_START, _END, _STEP = (_COLUMN[name] for name in ("start_ns", "end_ns", "step"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """(C, M) times of C paired collectives on M members, ns on the clock of each."""

    start: Int64Array
    end: Int64Array
    launch: Int64Array

    @classmethod
    def of(cls, paired: Paired, columns: Sequence[RankTimeline]) -> Times:
        """Return those of ``paired``, whose members' timelines are ``columns``."""
        start, end, launch = (
            np.stack([getattr(t.calls, name)[paired.rows[:, i]] for i, t in enumerate(columns)], 1)
            for name in ("start_ns", "end_ns", "launch_ns")
        )
        return cls(start=start, end=end, launch=launch)

    @staticmethod
    def extent_of(rows: Int64Array) -> tuple[int, int]:
        """Return the first start and the last end of some rows."""
        return int(rows[:, _START].min()), int(rows[:, _END].max())


def collective_rows(
    paired: Paired,
    timeline: RankTimeline,
    member: int,
    times: Times,
    group: int,
    first_seq: int,
    step: Int64Array,
) -> Int64Array:
    """Return the rows of one member; collectives outside of every step are left out."""
    key, calls, index = paired.key, timeline.calls, paired.rows[:, member]
    p2p = key.source >= 0
    rank = int(paired.members[member])
    return _table(
        len(index),
        kind=RecordKind.COLLECTIVE,
        code=calls.op[index] if p2p else paired.op,
        group=group,
        seq=first_seq + np.arange(len(index)),
        step=step,
        peer=(key.destination if rank == key.source else key.source) if p2p else -1,
        payload_bytes=calls.payload_bytes[index],
        start_ns=times.start[:, member],
        end_ns=times.end[:, member],
        join_ns=timeline.call_join_ns[index],
        issue_ns=times.launch[:, member],
        flags=0 if calls.on_host else int(Flag.GPU_TIME),
    )[step >= 0]


def own_rows(timeline: RankTimeline, numbers: Int64Array) -> list[Int64Array]:
    """Return the rows of phases, then those of steps, whose numbers in the job are ``numbers``."""
    phases = timeline.phases
    return [
        _table(
            len(phases),
            kind=RecordKind.PHASE,
            code=phases[:, 0],
            step=numbers[phases[:, 1]],
            start_ns=phases[:, 2],
            end_ns=phases[:, 3],
            flags=np.where(phases[:, 4], int(Flag.GPU_TIME), 0),
        ),
        _table(
            len(numbers),
            kind=RecordKind.STEP,
            step=numbers,
            start_ns=timeline.step_start_ns,
            end_ns=timeline.step_end_ns,
            flags=int(Flag.GPU_TIME) if timeline.on_device else 0,
        ),
    ]


def in_order(tables: Sequence[Int64Array]) -> Int64Array:
    """Return all rows by step, those of one step in the order in which they were given."""
    rows = np.concatenate(tables)
    return rows[np.argsort(rows[:, _STEP], kind="stable")]


def _table(length: int, *, peer: int | Int64Array = -1, **columns: int | Int64Array) -> Int64Array:
    table = np.zeros((length, len(ROW_FIELDS)), dtype=np.int64)
    table[:, _COLUMN["peer"]] = peer
    for name, values in columns.items():
        table[:, _COLUMN[name]] = values
    return table
