"""Committed frames of one attempt into a sink, in the order that each rank wrote them.

The sink is a ``JobAnalysis``, or what writes an event log: both see the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from paceline.vocabulary import Op, RecordKind
from paceline.wire.frames import Frame, GroupDef, Sample
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Group, Int64Array, Records
from paceline_service.jobs.columns import decode_frames
from paceline_service.jobs.imported import INFO_KEY, begin, take
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.sanitize import MAX_TIME_NS, sanitize_frames
from paceline_service.jobs.sinks import Arrivals, Sink
from paceline_service.jobs.stream import Stream
from paceline_service.jobs.walltime import ListeningClock
from paceline_service.store.frames import AttemptRef, CommittedFrame

DecodeRecords = Callable[[Frame], Records]
OnTelemetry = Callable[[int, list[Sample]], None]
"""Told the rank and its samples, in the order of its frames."""
MAX_NOTES = 50
MAX_GROUPS = 1 << 18
"""Definitions of groups of one attempt, every epoch of them: beyond it somebody invents them."""
MAX_MEMBERS = 1 << 23
"""Their members altogether: five dimensions of 100,000 ranks, made anew sixteen times."""
_OF_PROCESS = frozenset({"_on_telemetry"})
LATE_STEPS = 20
"""A rank first heard of when others are this far has joined late, and that is noted."""
BATCH_ROWS = 8192
"""Records that are decoded together: their columns fit the cache of a core."""
_NOTHING = np.zeros((0, 7), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group with what only its definition says."""

    group: Group
    backend: str


class FrameFeed:
    """Feeds one attempt. Records are decoded for many frames together: ``settle`` ends a batch.

    Args:
        attempt: which one.
        sink: takes the records.
        wait_ns: how long a missing frame is waited for.
        missing: for a replay: per incarnation the frame numbers that the store does not hold;
            all others are waited for until ``replayed`` is called.
        on_telemetry: takes the samples.
        arrivals: is told when frames come.
        ends: for a replay: per incarnation the number of the newest frame that is stored.
    """

    def __init__(
        self,
        attempt: AttemptRef,
        sink: Sink,
        *,
        wait_ns: int,
        missing: Mapping[str, tuple[tuple[int, int], ...]] | None = None,
        on_telemetry: OnTelemetry | None = None,
        arrivals: Arrivals | None = None,
        ends: Mapping[str, int] | None = None,
    ) -> None:
        self.attempt = attempt
        self.streams: dict[str, Stream] = {}
        self.groups: dict[int, GroupInfo] = {}
        self.notes: list[str] = []
        self.imported = ""
        """What the files of a replayed job tell beside records (``imported``)."""
        self._sink = sink
        self._wait_ns = wait_ns
        self._missing = missing
        self._on_telemetry = on_telemetry
        self._arrivals = arrivals
        self._ends = dict(ends or {})
        self._to_come: defaultdict[int, set[str]] = defaultdict(set)
        """Incarnations of each rank of which a replay has not met the last frame."""
        self._clock = ListeningClock()
        self._followed_from: dict[int, int] = {}
        self._defined: dict[tuple[str, str, int, str, int], tuple[int, frozenset[int]]] = {}
        """Groups that were declared: the index of each and its members."""
        self._members = 0
        self._of_rank: defaultdict[int, list[Stream]] = defaultdict(list)
        self._last_step = -1
        self._step_bases: dict[int, int] = {0: 0}
        self._batch: list[tuple[Stream, CommittedFrame]] = []
        """Frames in their order whose records the sink does not have yet."""
        self._batch_rows = 0
        self._batch_step = -1
        """The newest step that a frame of the batch says its rank is in."""

    def push(self, committed: CommittedFrame) -> None:
        """Take one frame; the sink has its records after ``settle`` at the latest."""
        if self._clock.came(committed.received_wall_ns):
            self.settle()  # what came before the pause is timed as before it
        stream = self.streams.get(committed.frame.incarnation)
        if stream is None:
            stream = self._open(committed)
        seq = committed.frame.frame_seq
        for ready in stream.buffer.push(seq, committed, committed.received_wall_ns):
            self._apply(stream, ready)

    def expire(self, now_wall_ns: int) -> bool:
        """Give up gaps that were waited for long enough; return whether that gave records."""
        any_ready = False
        for stream in self.streams.values():
            if not stream.buffer.held:
                continue
            for ready in stream.buffer.expire(now_wall_ns):
                self._apply(stream, ready)
                any_ready = True
        return any_ready

    def settle(self) -> None:
        """Give the sink what it does not have yet."""
        batch, self._batch, self._batch_rows, self._batch_step = self._batch, [], 0, -1
        if not batch:
            return
        self._add_records([item for item in batch if item[1].frame.count])
        for stream, committed in batch:
            heard_ns = self._clock.time_ns(committed.received_wall_ns)
            self._note_pending(stream, committed.frame, heard_ns)
            rank = stream.rank
            if self._arrivals is not None:
                self._arrivals.heard(rank, heard_ns)
                if self._ends.get(stream.incarnation, -1) == committed.frame.frame_seq:
                    self._expect(stream, more=False)
            if any(other.has_losses for other in self._of_rank[rank]):
                self._sink.note_dropped(rank, self.dropped(rank))
            if stream.ended and all(other.ended for other in self._of_rank[rank]):
                self._sink.rank_ended(rank, stream.ended)

    def replayed(self) -> None:
        """The store has been read to its end: from now on gaps are waited for by the clock."""
        self._missing = None
        for stream in self.streams.values():
            stream.buffer.wait_again(self._wait_ns)
            self._expect(stream, more=False)
        self._ends = {}

    def _expect(self, stream: Stream, *, more: bool) -> None:
        """Say whether the store holds more of a stream than came."""
        if self._arrivals is None or not (more or self._to_come):
            return
        of_rank = self._to_come[stream.rank]
        (of_rank.add if more else of_rank.discard)(stream.incarnation)
        self._arrivals.more_to_come(stream.rank, more=bool(of_rank))

    def __getstate__(self) -> dict[str, object]:
        """Return everything but what belongs to the process (``attach``)."""
        return {name: value for name, value in self.__dict__.items() if name not in _OF_PROCESS}

    def attach(
        self,
        attempt: AttemptRef,
        *,
        wait_ns: int,
        on_telemetry: OnTelemetry | None,
    ) -> None:
        """Give a feed that was read from a checkpoint what belongs to the process."""
        self.attempt = attempt
        self._wait_ns = wait_ns
        self._on_telemetry = on_telemetry
        for stream in self.streams.values():
            stream.buffer.wait_ns = wait_ns

    @property
    def sink(self) -> Sink:
        """What takes the records."""
        return self._sink

    @property
    def held_frames(self) -> int:
        """How many frames wait behind gaps."""
        return sum(stream.buffer.held for stream in self.streams.values())

    @property
    def all_ended(self) -> bool:
        """Whether every incarnation that was seen has ended."""
        return bool(self.streams) and all(stream.ended for stream in self.streams.values())

    @property
    def ranks_seen(self) -> int:
        """How many ranks have sent something."""
        return len(self._of_rank)

    def newest(self, rank: int) -> Stream | None:
        """Return the stream of ``rank`` that began last."""
        streams = self._of_rank.get(rank)
        return streams[-1] if streams else None

    def newest_telemetry(self, rank: int) -> Stream | None:
        """Return the newest stream of ``rank`` that told telemetry: only one of its rings does."""
        streams = [s for s in self._of_rank.get(rank, ()) if s.telemetry.time_ns >= 0]
        return streams[-1] if streams else None

    def versions(self, rank: int) -> dict[str, str]:
        """Return the software that ``rank`` told last; a ring of the plugin tells none."""
        told = [s.versions for s in self._of_rank.get(rank, ()) if s.versions]
        return told[-1] if told else {}

    def dropped(self, rank: int) -> dict[str, int]:
        """Return what was lost of ``rank``, over all its incarnations."""
        lossy = [stream.dropped for stream in self._of_rank.get(rank, ()) if stream.has_losses]
        return dict(sum(lossy, Counter[str]())) if lossy else {}

    def _open(self, committed: CommittedFrame) -> Stream:
        frame = committed.frame
        before = [s for s in self._of_rank[frame.rank] if s.producer == frame.producer]
        generation = len(before)
        if before or (self._batch_step >= LATE_STEPS and len(self.notes) < MAX_NOTES):
            self.settle()  # how far the others are is about to be asked
        if generation not in self._step_bases:
            self._step_bases[generation] = self._last_step + 1
        base = self._step_bases[generation]
        patient = self._missing is not None
        missing = self._missing.get(frame.incarnation, ()) if self._missing is not None else ()
        stream = Stream(
            incarnation=frame.incarnation,
            rank=frame.rank,
            producer=frame.producer,
            generation=generation,
            step_base=base,
            buffer=ReorderBuffer(committed.first_seq, None if patient else self._wait_ns, missing),
            node=frame.node,
        )
        self.streams[frame.incarnation] = stream
        self._of_rank[frame.rank].append(stream)
        if self._ends.get(frame.incarnation, -1) > frame.frame_seq:
            self._expect(stream, more=True)
        if committed.first_seq:
            stream.lost["frames_deleted"] = committed.first_seq
            self.note(
                f"the first {committed.first_seq} frames of rank {frame.rank} were deleted by "
                "retention; the analysis begins after them"
            )
        if before:
            was = before[-1].ended or "running"
            self.note(
                f"rank {frame.rank} restarted within the attempt (its process before was {was}); "
                f"its steps count on from {base}"
            )
            if not before[-1].ended:
                before[-1].ended = "killed"
        elif self._last_step >= LATE_STEPS:
            self.note(f"rank {frame.rank} joined late, when others were at step {self._last_step}")
        if INFO_KEY in frame.info and len(self.streams) == 1:
            begin(frame.info, self._sink)
        self._sink.declare_rank(frame.rank, node=frame.node, clock_domain=frame.clock_domain)
        return stream

    def _apply(self, stream: Stream, committed: CommittedFrame) -> None:
        frame = committed.frame
        jumps = stream.clock.jumps_back
        stream.note(frame, committed.received_wall_ns)
        if frame.control_generation != stream.control_generation:
            stream.control_generation = frame.control_generation
            self._note_control(stream, frame)
        if stream.clock.jumps_back > jumps == 0:
            self.note(f"the wall clock of rank {stream.rank} ({stream.node}) was set back")
        for definition in frame.groups:
            if stream.definitions.get(definition.index) != definition:
                self._declare(stream, definition)
        if INFO_KEY in frame.info:
            self.imported = take(frame.info, stream.group_of_local, self._sink) or self.imported
        if frame.telemetry:
            stream.telemetry.add(frame.telemetry)
            if self._on_telemetry is not None:
                self._on_telemetry(stream.rank, frame.telemetry)
        self._batch.append((stream, committed))
        self._batch_rows += frame.count
        self._batch_step = max(self._batch_step, frame.step + stream.step_base)
        if self._batch_rows >= BATCH_ROWS or len(self._batch) >= BATCH_ROWS:
            self.settle()

    def _add_records(self, batch: list[tuple[Stream, CommittedFrame]]) -> None:
        """Decode the records of frames that have some, and give the usable ones to the sink."""
        if not batch:
            return
        frames = [committed.frame for _, committed in batch]
        table, lost = sanitize_frames(
            decode_frames(frames),
            np.array([frame.count for frame in frames], dtype=np.int64),
            [stream.group_of_local for stream, _ in batch],
            np.array([stream.step_base for stream, _ in batch], dtype=np.int64),
            self.attempt.world_size,
        )
        for at, reasons in lost.items():
            batch[at][0].lost += reasons
        if not len(table):
            return
        self._note_steps(table, [stream for stream, _ in batch])
        self._sink.add_table(table)

    def _note_steps(self, table: Table, streams: list[Stream]) -> None:
        """Keep the newest step that each stream has ended."""
        ended = table.kind == RecordKind.STEP
        rank, step = table.rank[ended], table.step[ended]
        if not len(step):
            return
        order = np.lexsort((step, rank))
        rank, step = rank[order], step[order]
        last = np.append(rank[1:] != rank[:-1], True)
        newest = dict(zip(rank[last].tolist(), step[last].tolist(), strict=True))
        self._last_step = max(self._last_step, int(step.max()))
        for stream in streams:
            stream.step = max(stream.step, newest.get(stream.rank, -1))

    def _note_pending(self, stream: Stream, frame: Frame, heard_ns: int) -> None:
        """Tell what the newest process of a rank is in; times stay on the rank's own clock."""
        if self.newest(stream.rank) is not stream:
            return
        now_ns = frame.read_mono_ns
        if now_ns <= 0 and frame.anchor_mono_ns > 0 and frame.sent_wall_ns > 0:
            now_ns = frame.sent_wall_ns - frame.anchor_wall_ns + frame.anchor_mono_ns
        if not 0 < now_ns < MAX_TIME_NS:
            return
        self._sink.note_pending(
            stream.rank,
            self._pending_rows(stream, frame) if frame.pending else _NOTHING,
            now_ns=now_ns,
            heard_wall_ns=heard_ns,
            step=frame.step + stream.step_base,
            checkpoint_ns=min(max(frame.checkpoint_mono_ns, 0), now_ns),
        )

    def _pending_rows(self, stream: Stream, frame: Frame) -> Int64Array:
        """Return the usable rows of what is in flight, in the columns of ``RankNow.pending``."""
        rows = [one for one in frame.pending if 0 <= one.group < len(stream.group_of_local)]
        table = np.array(
            [(stream.group_of_local[one.group], one.op, one.seq, one.step + stream.step_base,
              one.peer, one.payload_bytes, one.start_ns) for one in rows],
            dtype=np.int64,
        ).reshape(-1, 7)  # fmt: skip
        usable = (
            (table[:, 0] >= 0) & (table[:, 1] >= 0) & (table[:, 1] < len(Op))
            & (table[:, 4] < self.attempt.world_size)
            & (table[:, 2:4] >= 0).all(axis=1)
            & (table[:, 6] > 0) & (table[:, 6] < MAX_TIME_NS)
        )  # fmt: skip
        return table[usable]

    def _declare(self, stream: Stream, definition: GroupDef) -> None:
        """Take a definition that the stream does not have."""
        if definition.index in stream.definitions:
            self.settle()  # what came before it means another group by that number
        # All members of a group define it: at a thousand ranks and more that is done once.
        key = (definition.name, definition.ranks, definition.epoch, definition.mesh_dim,
               stream.generation)  # fmt: skip
        known = self._defined.get(key)
        if known is None or not stream.may_define(definition) or stream.rank not in known[1]:
            group = stream.group(definition, self.attempt.world_size)
            if group is None:
                stream.lost["bad_group"] += 1
                return
            self._members += len(group.ranks)
            if len(self._defined) >= MAX_GROUPS or self._members > MAX_MEMBERS:
                stream.lost["bad_group"] += 1
                self.note(f"more than {MAX_GROUPS} groups or {MAX_MEMBERS} members: not followed")
                return
            known = self._sink.declare_group(group), frozenset(group.ranks)
            self._defined[key] = known
            info = GroupInfo(group=group, backend=definition.backend)
            self.groups.setdefault(known[0], info)
        stream.set_group(definition, known[0])

    def _note_control(self, stream: Stream, frame: Frame) -> None:
        """Say which ranks began to follow a setting later than others."""
        step = frame.control_step
        if stream.generation or not step:
            return  # it counts from 0 again, or has no steps
        agreed = self._followed_from.setdefault(frame.control_generation, step)
        self._followed_from[frame.control_generation] = min(agreed, step)
        if step > agreed:
            self.note(
                f"rank {stream.rank} changed what it records at step {step}, others at {agreed}: "
                "it heard of the setting too late"
            )

    def note(self, text: str) -> None:
        """Keep a sentence for the report."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)
