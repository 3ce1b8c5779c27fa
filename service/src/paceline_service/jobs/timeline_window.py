"""The stored records of some steps of an attempt, read back from its raw frames.

Frames lie in the order of their commits. What is recorded of a step is committed after the step,
soon for most ranks and minutes later for one whose sidecar was cut off. So the reading begins at
the first frame that could hold the first step, and goes on until every rank has told of later
steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from paceline.errors import InputError
from paceline.wire.bundle_codec import frames_of
from paceline.wire.bundles import Bundle
from paceline.wire.frames import Frame
from paceline_service.analysis.matching.table import Table, as_table, stack
from paceline_service.analysis.records import COLUMNS, Group, Int64Array, Records
from paceline_service.export.timeline.drawn_job import DrawnJob
from paceline_service.jobs.columns import decode_bundles
from paceline_service.jobs.feed import DecodeRecords
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.sanitize import sanitize
from paceline_service.jobs.stream import Stream
from paceline_service.store.frames import AttemptRef, CommittedFrame

MAX_RECORDS = 500_000
"""Records of all ranks in one window: 50 MB. A window of one step may hold four times as many."""
LATE_FRAMES = 4096
"""Frames that are read on for ranks that lag, and as many again for every 256 ranks."""
_PROBES_BACK = 4

ReadPage = Callable[[AttemptRef, int], Awaitable[list[CommittedFrame]]]


@dataclass(slots=True, kw_only=True)
class Window:
    """What was read: the records of all ranks in the steps from ``first`` to ``last``."""

    attempt: AttemptRef
    first: int
    last: int
    """Before the step that was asked for where there were too many records."""
    job: DrawnJob
    steps: dict[int, Table] = field(default_factory=dict)
    records: int = 0
    unusable: int = 0
    """Records that are against the rules of the wire; the analysis leaves them out too."""
    frames_read: int = 0
    lagging: list[int] = field(default_factory=list)
    """Ranks that were not heard of behind the window: more of them may be missing."""


async def read_window(
    attempt: AttemptRef,
    page: ReadPage,
    decode: DecodeRecords,
    *,
    first: int,
    last: int,
    newest_frame_id: int,
    restarted: bool,
    run: Callable[[Callable[[], bool]], Awaitable[bool]],
) -> Window:
    """Return the records of the steps from ``first`` to ``last``.

    Args:
        attempt: of which launch.
        page: reads stored frames.
        decode: makes records of a frame.
        first: step.
        last: step, included.
        newest_frame_id: of the attempt.
        restarted: some rank of it has restarted: its steps count on from those before, so that
            everything before has to be read.
        run: runs a function elsewhere than on the event loop.

    Raises:
        InputError: one step alone has too many records.
    """
    start = 0
    if not restarted and first > 0:
        start = await _find_start(attempt, page, first, newest_frame_id)
    reader = _Reader(attempt, decode, first, last)
    after_id, go_on = start, True
    while go_on:
        frames = await page(attempt, after_id)
        if not frames:
            break
        after_id = frames[-1].id
        go_on = await run(lambda frames=frames: reader.take(frames))  # type: ignore[misc]
    return reader.window()


async def _find_start(attempt: AttemptRef, page: ReadPage, first: int, newest_frame_id: int) -> int:
    """Return the id of a frame before which none tells of step ``first``."""

    async def tells(after_id: int) -> bool:
        frames = await page(attempt, after_id)
        return any(one.frame.step >= first for one in frames)

    low, high, found = 0, newest_frame_id, False
    while high - low > 1:
        middle = (low + high) // 2
        if await tells(middle):
            high, found = middle, True
        else:
            low = middle
    if not found:
        return 0  # there are few frames, or they do not tell their steps
    # A page of nothing but late frames may have led astray: look at some places before it.
    back = 256
    for _ in range(_PROBES_BACK):
        earlier = max(low - back, 0)
        if earlier < low and await tells(earlier):
            low = earlier
        back *= 4
    return low


class _Reader:
    def __init__(self, attempt: AttemptRef, decode: DecodeRecords, first: int, last: int) -> None:
        self._decode = decode
        job = DrawnJob(world_size=attempt.world_size)
        self._window = Window(attempt=attempt, first=first, last=last, job=job)
        self._streams: dict[str, Stream] = {}
        self._group_index: dict[tuple[str, tuple[int, ...], int], int] = {}
        self._parts: dict[str, list[tuple[int, Records]]] = {}
        self._per_step: Int64Array = np.zeros(last - first + 1, dtype=np.int64)
        self._step_bases: dict[int, int] = {0: 0}
        self._newest_step = -1
        self._started: Counter[tuple[int, str]] = Counter()
        self._behind: set[int] = set()
        """Ranks that have told of steps behind the window, or ended."""
        self._ranks: set[int] = set()
        self._late_frames = 0

    def take(self, frames: list[CommittedFrame]) -> bool:
        """Take a page; return whether more is to be read."""
        window = self._window
        for committed in frames:
            self._take(committed)
        window.frames_read += len(frames)
        if len(self._behind) == len(self._ranks) == window.attempt.world_size:
            return False
        if self._behind:
            self._late_frames += len(frames)
        patience = LATE_FRAMES * (1 + window.attempt.world_size // 256)
        return self._late_frames < patience

    def window(self) -> Window:
        """Return what was read, by step."""
        window = self._window
        window.lagging = sorted(self._ranks - self._behind)
        tables: list[Table] = []
        for parts in self._parts.values():
            parts.sort(key=lambda part: part[0])
            for _, records in parts:
                kept = records.take(records.step <= window.last)
                if len(kept):
                    tables.append(as_table(kept))
        self._parts.clear()
        window.job.members.settle()
        if not tables:
            return window
        table = stack(tables)
        window.records = len(table)
        order = np.argsort(table.step, kind="stable")
        table = table.take(order)
        steps, starts = np.unique(table.step, return_index=True)
        ends = np.append(starts[1:], len(table))
        for step, start, end in zip(steps.tolist(), starts.tolist(), ends.tolist(), strict=True):
            window.steps[step] = table.take(slice(start, end))
        return window

    def _take(self, committed: CommittedFrame) -> None:
        frame = committed.frame
        if not isinstance(frame, Bundle):
            self._take_frame(frame, self._decode)
            return
        table, counts = decode_bundles([frame])
        ends = np.cumsum(counts).tolist()
        for one, end in zip(frames_of(frame, records=False), ends, strict=True):
            rows = table.take(slice(end - one.count, end))
            self._take_frame(one, lambda of, rows=rows: _records(of.rank, rows))  # type: ignore[misc]

    def _take_frame(self, frame: Frame, decode: DecodeRecords) -> None:
        stream = self._streams.get(frame.incarnation) or self._open(frame)
        window = self._window
        stream.clock.anchor(frame.anchor_mono_ns, frame.anchor_wall_ns)
        offset_ns = stream.clock.to_wall_ns(0)
        if offset_ns >= 0:
            window.job.wall_offsets_ns[frame.rank] = offset_ns
        if frame.ended or frame.step + stream.step_base > window.last + 1:
            self._behind.add(frame.rank)
        for definition in frame.groups:
            if stream.definitions.get(definition.index) == definition:
                continue
            group = stream.group(definition, window.attempt.world_size)
            if group is not None:
                stream.set_group(definition, self._declare(group))
        if not frame.count:
            return
        records, lost = sanitize(
            decode(frame), stream.group_of_local, stream.step_base,
            window.attempt.world_size,
        )  # fmt: skip
        if len(records):
            self._newest_step = max(self._newest_step, int(records.step.max()))
        inside = (records.step >= window.first) & (records.step <= window.last)
        if not inside.any():
            return
        window.unusable += sum(lost.values())
        records = records if inside.all() else records.take(inside)
        self._parts.setdefault(frame.incarnation, []).append((frame.frame_seq, records))
        self._count(records)

    def _count(self, records: Records) -> None:
        """Count records by step; give up the last steps where there are too many."""
        window = self._window
        counted = np.bincount(records.step - window.first, minlength=len(self._per_step))
        self._per_step += counted[: len(self._per_step)]
        total = int(self._per_step.sum())
        if total <= MAX_RECORDS:
            return
        kept = max(int(np.searchsorted(np.cumsum(self._per_step), MAX_RECORDS, "right")), 1)
        if kept == 1 and int(self._per_step[0]) > 4 * MAX_RECORDS:
            raise InputError(
                f"step {window.first} has over {4 * MAX_RECORDS:,} records, the most that a "
                "timeline is made from; export the job and draw it elsewhere"
            )
        if kept == len(self._per_step):
            return
        self._per_step = self._per_step[:kept]
        window.last = window.first + kept - 1
        for parts in self._parts.values():
            parts[:] = [(seq, one.take(one.step <= window.last)) for seq, one in parts]

    def _open(self, frame: Frame) -> Stream:
        """Return a new stream; the steps of a restarted rank count on as in ``FrameFeed``."""
        generation = self._started[frame.rank, frame.producer]
        self._started[frame.rank, frame.producer] += 1
        base = self._step_bases.setdefault(generation, self._newest_step + 1)
        stream = Stream(
            incarnation=frame.incarnation, rank=frame.rank, producer=frame.producer,
            generation=generation, step_base=base, buffer=ReorderBuffer(0, None, ()),
            node=frame.node,
        )  # fmt: skip
        self._streams[frame.incarnation] = stream
        self._ranks.add(frame.rank)
        if frame.node:
            self._window.job.nodes[frame.rank] = frame.node
        if frame.clock_domain:
            self._window.job.clock_domains[frame.rank] = frame.clock_domain
        return stream

    def _declare(self, group: Group) -> int:
        job = self._window.job
        key = (group.name, group.ranks, group.epoch)
        index = self._group_index.setdefault(key, len(job.groups))
        if index == len(job.groups):
            job.add_group(group)
        return index


def _records(rank: int, rows: Table) -> Records:
    return Records(rank=rank, **{name: getattr(rows, name) for name in COLUMNS})
