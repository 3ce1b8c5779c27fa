"""What is known of the rings of one attempt: their streams, groups, losses and notes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from paceline.counted import counted
from paceline.telemetry import REPLICA_STEP
from paceline.vocabulary import Op
from paceline.wire.bundles import Bundle, Extra, Member
from paceline.wire.frames import Frame, GroupDef, Sample
from paceline_service.analysis.records import Group, Int64Array
from paceline_service.jobs.bundle_stream import Batched, BundleStream
from paceline_service.jobs.imported import INFO_KEY, begin
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.sanitize import MAX_TIME_NS
from paceline_service.jobs.sinks import Arrivals, Sink
from paceline_service.jobs.stream import Stream
from paceline_service.jobs.walltime import ListeningClock
from paceline_service.store.frames import AttemptRef, CommittedFrame

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


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupInfo:
    """A group with what only its definition says."""

    group: Group
    backend: str


class FeedState:
    """The state of a feed; what moves it is ``FrameFeed``.

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
        self.bundles: dict[str, BundleStream] = {}
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
        self._batch: list[Batched] = []
        """Frames, or bundles, in their order whose records the sink does not have yet."""
        self._batch_rows = 0
        self._batch_step = -1
        """The newest step that a frame of the batch says its rank is in."""

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
        for buffer in self._buffers():
            buffer.wait_ns = wait_ns

    @property
    def sink(self) -> Sink:
        """What takes the records."""
        return self._sink

    @property
    def held_frames(self) -> int:
        """How many frames wait behind gaps."""
        return sum(buffer.held for buffer in self._buffers())

    @property
    def late_frames(self) -> int:
        """How many frames came when their turn was over."""
        return sum(buffer.late for buffer in self._buffers())

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

    def of_rank(self, rank: int) -> list[Stream]:
        """Return the streams of ``rank`` in the order in which they began."""
        return self._of_rank.get(rank) or []

    def newest_telemetry(self, rank: int) -> Stream | None:
        """Return the newest stream of ``rank`` that told telemetry: only one of its rings does."""
        for stream in reversed(self.of_rank(rank)):
            if stream.telemetry.time_ns >= 0:
                return stream
        return None

    def versions(self, rank: int) -> dict[str, str]:
        """Return the software that ``rank`` told last; a ring of the plugin tells none."""
        for stream in reversed(self.of_rank(rank)):
            if stream.versions:
                return stream.versions
        return {}

    def dropped(self, rank: int) -> dict[str, int]:
        """Return what was lost of ``rank``, over all its incarnations."""
        lossy = [stream.dropped for stream in self._of_rank.get(rank, ()) if stream.has_losses]
        return dict(sum(lossy, Counter[str]())) if lossy else {}

    def note(self, text: str) -> None:
        """Keep a sentence for the report."""
        if len(self.notes) < MAX_NOTES:
            self.notes.append(text)

    def _expect(self, name: str, streams: Iterable[Stream], *, more: bool) -> None:
        """Say whether the store holds more of some streams, of what has that name, than came."""
        if self._arrivals is None or not (more or self._to_come):
            return
        for stream in streams:
            of_rank = self._to_come[stream.rank]
            (of_rank.add if more else of_rank.discard)(name)
            self._arrivals.more_to_come(stream.rank, more=bool(of_rank))

    def _open(
        self, frame: Frame | Bundle, writer: Frame | Member, first_seq: int, next_seq: int = -1
    ) -> Stream:
        """Return a new stream.

        Args:
            frame: the first of it, or the bundle that it is a member of.
            writer: who wrote it.
            first_seq: retention has deleted what was before.
            next_seq: the first that is expected; -1: that is ``first_seq``.
        """
        rank, incarnation = writer.rank, writer.incarnation
        before = [s for s in self._of_rank[rank] if s.producer == writer.producer]
        generation = len(before)
        if before or (self._batch_step >= LATE_STEPS and len(self.notes) < MAX_NOTES):
            self.settle()  # how far the others are is about to be asked
        if generation not in self._step_bases:
            self._step_bases[generation] = self._last_step + 1
        base = self._step_bases[generation]
        patient = self._missing is not None
        missing = self._missing.get(incarnation, ()) if self._missing is not None else ()
        stream = Stream(
            incarnation=incarnation,
            rank=rank,
            producer=writer.producer,
            generation=generation,
            step_base=base,
            buffer=ReorderBuffer(
                next_seq if next_seq >= 0 else first_seq,
                None if patient else self._wait_ns,
                missing,
            ),
            node=frame.node,
        )
        self.streams[incarnation] = stream
        self._of_rank[rank].append(stream)
        if first_seq:
            stream.lost["frames_deleted"] = first_seq
            self.note(
                f"retention has deleted the first {counted(first_seq, 'frame')} of rank {rank}; "
                "the analysis begins after that"
            )
        if before:
            was = before[-1].ended or "running"
            self.note(
                f"rank {rank} restarted within the attempt (its process before was {was}); "
                f"its steps count on from {base}"
            )
            if not before[-1].ended:
                before[-1].ended = "killed"
        elif self._last_step >= LATE_STEPS:
            self.note(f"rank {rank} joined late, when others were at step {self._last_step}")
        if isinstance(writer, Frame) and INFO_KEY in writer.info and len(self.streams) == 1:
            begin(writer.info, self._sink)
        self._sink.declare_rank(rank, node=frame.node, clock_domain=writer.clock_domain)
        return stream

    def _declare(self, stream: Stream, definition: GroupDef) -> None:
        """Take a definition that the stream does not have."""
        if definition.index in stream.definitions:
            self.settle()  # what came before it means another group by that number
            for bundles in self.bundles.values():
                bundles.origin = None  # members may have to be told their groups again
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

    def _note_control(self, stream: Stream, frame: Frame | Extra) -> None:
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

    def _note_clock(self, stream: Stream) -> None:
        self.note(f"the wall clock of rank {stream.rank} ({stream.node}) was set back")

    def _take_samples(self, stream: Stream, samples: list[Sample]) -> None:
        stream.telemetry.add(samples)
        if self._on_telemetry is not None:
            if stream.step_base:
                samples = [_at_job_step(sample, stream.step_base) for sample in samples]
            self._on_telemetry(stream.rank, samples)

    def _pending_rows(self, stream: Stream, frame: Frame | Extra) -> Int64Array:
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

    def _expect_nothing(self) -> None:
        """Say that the store holds no more of anybody."""
        for rank, names in self._to_come.items():
            if names and self._arrivals is not None:
                self._arrivals.more_to_come(rank, more=False)
        self._to_come.clear()

    def _buffers(self) -> Iterator[ReorderBuffer[CommittedFrame]]:
        yield from (stream.buffer for stream in self.streams.values())
        yield from (bundles.buffer for bundles in self.bundles.values())

    def settle(self) -> None:
        """Give the sink what it does not have yet."""
        raise NotImplementedError


def _at_job_step(sample: Sample, step_base: int) -> Sample:
    """Return the sample with the step of its replica digest counted over all generations."""
    step = sample.values.get(REPLICA_STEP)
    if type(step) is not int:
        return sample
    return Sample(sample.time_ns, {**sample.values, REPLICA_STEP: step + step_base})
