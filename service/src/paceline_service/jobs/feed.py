"""Committed frames of one attempt into a sink, in the order that each rank wrote them.

The sink is a ``JobAnalysis``, or what writes an event log: both see the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from paceline.vocabulary import RecordKind
from paceline.wire.bundle_codec import frames_of
from paceline.wire.bundles import Bundle, Extra
from paceline.wire.frames import Frame
from paceline_service.analysis.matching.table import Table
from paceline_service.analysis.records import Int64Array, Records
from paceline_service.jobs.bundle_stream import Batched, BundleStream
from paceline_service.jobs.columns import decode_bundles, decode_frames
from paceline_service.jobs.feed_state import FeedState
from paceline_service.jobs.imported import INFO_KEY, take
from paceline_service.jobs.reorder import ReorderBuffer
from paceline_service.jobs.sanitize import MAX_TIME_NS, sanitize_frames
from paceline_service.jobs.stream import Stream
from paceline_service.store.frames import CommittedFrame

DecodeRecords = Callable[[Frame], Records]
BATCH_ROWS = 8192
"""Records that are decoded together: their columns fit the cache of a core."""
_NOTHING = np.zeros((0, 7), dtype=np.int64)


class FrameFeed(FeedState):
    """Feeds one attempt. Records are decoded for many frames together: ``settle`` ends a batch."""

    def push(self, committed: CommittedFrame) -> None:
        """Take one frame; the sink has its records after ``settle`` at the latest."""
        if self._clock.came(committed.received_wall_ns):
            self.settle()  # what came before the pause is timed as before it
        frame = committed.frame
        if isinstance(frame, Bundle):
            self._push_bundle(frame, committed)
            return
        stream = self.streams.get(frame.incarnation)
        if stream is None:
            stream = self._open(frame, frame, committed.first_seq)
            if self._ends.get(frame.incarnation, -1) > frame.frame_seq:
                self._expect(stream.incarnation, [stream], more=True)
        seq = frame.frame_seq
        for ready in stream.buffer.push(seq, committed, committed.received_wall_ns):
            self._apply(stream, ready)

    def expire(self, now_wall_ns: int) -> bool:
        """Give up gaps that were waited for long enough; return whether that gave records."""
        any_ready = False
        waiting = [one for one in self.streams.values() if one.buffer.waits]
        for stream in waiting:
            for ready in stream.buffer.expire(now_wall_ns):
                self._apply(stream, ready)
                any_ready = True
        for bundles in self.bundles.values():
            if bundles.buffer.waits:
                for ready in bundles.buffer.expire(now_wall_ns):
                    self._apply_bundle(bundles, ready)
                    any_ready = True
        return any_ready

    def settle(self) -> None:
        """Give the sink what it does not have yet."""
        batch, self._batch, self._batch_rows, self._batch_step = self._batch, [], 0, -1
        if not batch:
            return
        self._add_records([item for item in batch if item.committed.frame.count])
        for item in batch:
            frame = item.committed.frame
            heard_ns = self._clock.time_ns(item.committed.received_wall_ns)
            if isinstance(frame, Bundle):
                self._note_pending_of(item.streams, frame, heard_ns)
            else:
                self._note_pending(item.streams[0], frame, heard_ns)
            if self._ends.get(frame.incarnation, -1) == frame.frame_seq:
                self._expect(frame.incarnation, item.streams, more=False)
            for stream in item.streams:
                rank = stream.rank
                if self._arrivals is not None:
                    self._arrivals.heard(rank, heard_ns)
                of_rank = self._of_rank[rank]
                alone = len(of_rank) == 1  # as nearly always: there are thousands of ranks
                if stream.has_losses or (not alone and any(one.has_losses for one in of_rank)):
                    self._sink.note_dropped(rank, self.dropped(rank))
                if stream.ended and all(other.ended for other in of_rank):
                    self._sink.rank_ended(rank, stream.ended)

    def replayed(self) -> None:
        """The store has been read to its end: from now on gaps are waited for by the clock."""
        self._missing = None
        for stream in self.streams.values():
            stream.buffer.wait_again(self._wait_ns)
            self._expect(stream.incarnation, [stream], more=False)
        for bundles in self.bundles.values():
            bundles.buffer.wait_again(self._wait_ns)
        self._expect_nothing()
        self._ends = {}

    def _apply(self, stream: Stream, committed: CommittedFrame) -> None:
        frame = committed.frame
        assert isinstance(frame, Frame)
        jumps = stream.clock.jumps_back
        stream.note(frame, committed.received_wall_ns)
        if frame.control_generation != stream.control_generation:
            stream.control_generation = frame.control_generation
            self._note_control(stream, frame)
        if stream.clock.jumps_back > jumps == 0:
            self._note_clock(stream)
        for definition in frame.groups:
            if stream.definitions.get(definition.index) != definition:
                self._declare(stream, definition)
        if INFO_KEY in frame.info:
            self.imported = take(frame.info, stream.group_of_local, self._sink) or self.imported
        if frame.telemetry:
            self._take_samples(stream, frame.telemetry)
        self._append(Batched([stream], committed), frame.step + stream.step_base)

    def _append(self, item: Batched, step: int) -> None:
        if self._batch and (self._batch[-1].of is None) != (item.of is None):
            self.settle()  # frames are decoded together, and bundles are
        self._batch.append(item)
        self._batch_rows += item.committed.frame.count
        self._batch_step = max(self._batch_step, step)
        if self._batch_rows >= BATCH_ROWS or len(self._batch) >= BATCH_ROWS:
            self.settle()

    def _push_bundle(self, bundle: Bundle, committed: CommittedFrame) -> None:
        known = self.bundles.get(bundle.incarnation)
        if known is None:
            first = committed.first_seq
            patient = self._missing is not None
            missing = (self._missing or {}).get(bundle.incarnation, ())
            known = self.bundles[bundle.incarnation] = BundleStream(
                stream=bundle.incarnation,
                buffer=ReorderBuffer(first, None if patient else self._wait_ns, missing),
                first_seq=first,
            )
        late = known.buffer.late
        received_ns = committed.received_wall_ns
        for ready in known.buffer.push(bundle.frame_seq, committed, received_ns):
            self._apply_bundle(known, ready)
        if known.buffer.late > late:
            for incarnation in bundle.origin.incarnations:
                stream = self.streams.get(incarnation)
                if stream is not None:
                    stream.buffer.late += 1

    def _apply_bundle(self, of: BundleStream, committed: CommittedFrame) -> None:
        bundle = committed.frame
        assert isinstance(bundle, Bundle)
        body = bundle.body
        if bundle.origin is not of.origin:
            self._meet(of, bundle, committed)
        streams = [stream for stream in of.members if stream is not None]
        whole = len(streams) == len(of.members)
        if not whole or any(map(_is_late, streams, body.frame_seqs)):
            self._apply_singly(of, bundle, committed)
            return
        for stream, seq in zip(streams, body.frame_seqs, strict=True):
            if held_before := stream.buffer.take(seq):
                for held in held_before:
                    self._apply(stream, held)
        received_ns = committed.received_wall_ns
        step_base = 0
        for stream in streams:
            if received_ns > stream.last_seen_wall_ns:
                stream.last_seen_wall_ns = received_ns
            step_base |= stream.step_base
        for stream in of.tell_clocks(bundle, streams):
            self._note_clock(stream)
        for place in of.reporting - body.extras.keys():
            streams[place].reported = {}
        of.reporting = set()
        for place, extra in body.extras.items():
            self._take_extra(of, streams[place], place, extra)
        step = bundle.step
        if step_base:
            step = max(s + one.step_base for s, one in zip(body.steps, streams, strict=True))
        self._append(Batched(streams, committed, of), step)

    def _apply_singly(self, of: BundleStream, bundle: Bundle, committed: CommittedFrame) -> None:
        """Take a bundle of which not all members are in their order, member by member."""
        of.anchors = None
        for stream, frame in zip(of.members, frames_of(bundle), strict=True):
            if stream is None:
                continue
            ready = stream.buffer.take(frame.frame_seq)
            if ready is None:
                continue
            for held in ready:
                self._apply(stream, held)
            self._apply(stream, msgspec.structs.replace(committed, frame=frame))

    def _take_extra(self, of: BundleStream, stream: Stream, place: int, extra: Extra) -> None:
        """Take what a member tells beside its records."""
        if extra.dropped:
            of.reporting.add(place)
        stream.note_told(extra)
        if extra.control_generation != stream.control_generation:
            stream.control_generation = extra.control_generation
            self._note_control(stream, extra)
        if extra.telemetry:
            self._take_samples(stream, extra.telemetry)

    def _meet(self, of: BundleStream, bundle: Bundle, committed: CommittedFrame) -> None:
        """Find the streams of the members of a bundle, and declare what they define."""
        begins = not of.members
        more = self._ends.get(bundle.incarnation, -1) > bundle.frame_seq
        origin = bundle.origin
        members: list[Stream | None] = []
        for place, member in enumerate(origin.members):
            stream = self.streams.get(member.incarnation)
            if stream is None:
                seq = bundle.body.frame_seqs[place]
                # Where the store is read, what is not in it was deleted.
                deleted = seq if begins and (of.first_seq or self._missing is not None) else 0
                stream = self._open(bundle, member, deleted)
            if stream.rank != member.rank:
                stream.lost["rank_mismatch"] += 1
                members.append(None)
                continue
            stream.node = origin.node or stream.node
            for definition in origin.definitions[place]:
                if stream.definitions.get(definition.index) != definition:
                    self._declare(stream, definition)
            members.append(stream)
            if more:
                self._expect(bundle.incarnation, [stream], more=True)
        # Who is in it no longer may never come again; who does is expected again.
        kept = set(origin.incarnations)
        gone = [one for one in of.members if one is not None and one.incarnation not in kept]
        self._expect(bundle.incarnation, gone, more=False)
        of.origin, of.members = origin, members
        of.anchors, of.reporting = None, set()

    def _add_records(self, batch: list[Batched]) -> None:
        """Decode the records of frames that have some, and give the usable ones to the sink."""
        if not batch:
            return
        table, counts = _decoded([item.committed.frame for item in batch])
        streams = [stream for item in batch for stream in item.streams]
        table, lost = sanitize_frames(
            table,
            counts,
            [stream.group_of_local for stream in streams],
            np.array([stream.step_base for stream in streams], dtype=np.int64),
            self.attempt.world_size,
        )
        for at, reasons in lost.items():
            streams[at].lost += reasons
        if not len(table):
            return
        self._note_steps(table, streams)
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

    def _note_pending_of(self, streams: list[Stream], bundle: Bundle, heard_ns: int) -> None:
        body, note = bundle.body, self._sink.note_pending
        reads_ns = bundle.read_mono_ns()
        for place, (stream, now_ns, step) in enumerate(
            zip(streams, reads_ns, body.steps, strict=True)
        ):
            if self.newest(stream.rank) is not stream or not 0 < now_ns < MAX_TIME_NS:
                continue
            extra = body.extras.get(place)
            if extra is None:
                pending, since_ns = _NOTHING, 0
            else:
                pending = self._pending_rows(stream, extra) if extra.pending else _NOTHING
                since_ns = min(max(extra.checkpoint_mono_ns, 0), now_ns)
            note(
                stream.rank, pending, now_ns=now_ns, heard_wall_ns=heard_ns,
                step=step + stream.step_base, checkpoint_ns=since_ns,
            )  # fmt: skip


def _is_late(stream: Stream, seq: int) -> bool:
    return stream.buffer.is_late(seq)


def _decoded(frames: Sequence[Frame | Bundle]) -> tuple[Table, Int64Array]:
    """Return the records of frames or of bundles, and how many there are of each ring."""
    bundles = [one for one in frames if isinstance(one, Bundle)]
    if bundles:
        return decode_bundles(bundles)
    alone = [one for one in frames if isinstance(one, Frame)]
    return decode_frames(alone), np.array([one.count for one in alone], dtype=np.int64)
