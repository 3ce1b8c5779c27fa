"""The join of two rings of one process, as a state machine without input and output.

docs/math/join.md has the rule and why it is right.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from paceline.ring import InFlight
from paceline.ring import layout as at
from paceline.sidecar.join.book import Book
from paceline.sidecar.join.calls import Call, Stretch, by_group
from paceline.sidecar.join.facts import (
    Communicator,
    Event,
    JoinedGroup,
    amounts_to,
    event_of,
    is_comparable,
)
from paceline.sidecar.join.foreign import Foreign
from paceline.sidecar.join.order import join_batches
from paceline.sidecar.join.rows import FIELDS, put_device_times, put_unknown_end
from paceline.sidecar.join.strays import Strays
from paceline.sidecar.join.usual import (
    ISSUES,
    done_of,
    event_columns,
    join_oldest,
    join_run,
)
from paceline.vocabulary import Flag

_GPU_TIME = int(Flag.GPU_TIME)
_PARTIAL = int(Flag.PARTIAL)
_GROUP = struct.Struct("<H")
_GROUP_OFFSET = 56
WAIT_S = 3.0
"""How long a call waits for an event that is neither finished nor in flight."""
LONGEST_WAIT_S = 60.0
"""How long it waits for one in flight, or behind one."""
PARTS_WAIT_S = 1.0
"""How long it waits for more events, where those it has do not add up."""
MAX_CALLS = 16384
"""Held back; beyond it the oldest are let go."""


class Joiner:
    """Joins the records of a rank's hooks with those of its plugin.

    What the hooks wrote leaves in the order in which it came, with device times where there are
    any. So the ring's tail stays one number, and steps stay in order.

    Args:
        rank: the global rank.
        world_size: ranks of the job.
    """

    def __init__(self, rank: int, world_size: int) -> None:
        self.unmeasured_calls = 0
        """Calls that were sent without device times."""
        self.book = Book(rank)
        self.foreign = Foreign(rank, world_size)
        self.strays = Strays(self.book, self.foreign)
        self.more = False
        """Whether the last release left records that may have been ready."""
        self._queue: deque[Stretch] = deque()
        self._calls_held = 0
        self._resumed = False
        self._newest_ns = 0

    def learn_comm(self, entry: Mapping[str, Any]) -> bool:
        """Take the description of a communicator; False where it cannot be read."""
        comm = self.book.learn_comm(entry)
        if comm is not None:
            self.foreign.learn(comm.index, entry)
        return comm is not None

    def resume(self) -> None:
        """Say that an earlier sidecar has judged what was issued before the first record."""
        self._resumed = True

    def lost(self) -> None:
        """Say that records of a ring are missing: order proves nothing about what was there."""
        for group in self.book.groups.values():
            group.trusted_from_ns = self._newest_ns

    def add_calls(self, raw: bytes, now_s: float) -> None:
        """Take records of the hooks, in order."""
        if not raw:
            return
        if self._resumed:
            self._resumed = False
            (self.strays.judged_until_ns,) = at.U64.unpack_from(raw)
        self.foreign.watch(raw)
        stretch = Stretch(raw, now_s)
        self._queue.append(stretch)
        self._calls_held += stretch.is_call.count(1)
        for index, run in stretch.runs().items():
            self._newest_ns = max(self._newest_ns, max(run.end_ns))
            group = self.book.groups.get(index)
            if group is None:  # its description was lost: it will be given up
                continue
            awaited_until_ns = self._awaited_until_ns(group)
            in_turn = not run.is_by_start and min(run.start_ns) <= awaited_until_ns
            if not in_turn:
                run.sort()
            while len(run) and (in_turn or run.first_start_ns <= awaited_until_ns):
                group.look_until(run.first_start_ns)
                call = run.take()
                group.add(call)
                self._find_events(call, group)
                awaited_until_ns = self._awaited_until_ns(group)
            group.add_run(run)

    def _awaited_until_ns(self, group: JoinedGroup) -> int:
        """Return the issue of the last event that waits for a call of ``group``, -1 without one."""
        return max(
            (
                comm.waiting[-1].issue_ns
                for comm in self.book.comms.values()
                if comm.waiting and (comm.group < 0 or comm.group == group.index)
            ),
            default=-1,
        )

    def add_events(self, raw: bytes, now_s: float) -> None:
        """Take records of the plugin, in order."""
        if not raw:
            return
        columns = event_columns(raw)
        self._newest_ns = max(self._newest_ns, max(columns[ISSUES]))
        others: list[int] = []
        for index, numbers in by_group(raw).items():
            comm = self.book.comms.get(index)
            if comm is None or not self._is_alone(comm):
                others += numbers
                continue
            group = self.book.groups[comm.group]
            done = done_of(raw, columns, numbers, group)
            at_place = 0
            while (at_place := at_place + join_run(group, comm, done, at_place)) < len(numbers):
                self._take_event(raw, numbers[at_place], now_s)
                at_place += 1
        for number in sorted(others):
            self._take_event(raw, number, now_s)

    def _is_alone(self, comm: Communicator) -> bool:
        """Whether no other communicator gives events to the group that ``comm`` is bound to."""
        return comm.whole and all(
            other is comm or other.group != comm.group for other in self.book.comms.values()
        )

    def _take_event(self, raw: bytes, number: int, now_s: float) -> None:
        fields = FIELDS.unpack_from(raw, number * at.RECORD_BYTES)
        event = event_of(fields, now_s)
        comm = self.book.comm_of(event)
        if comm.whole and join_oldest(self.book.groups[comm.group], comm, event):
            return
        # Without a proof so far, a call that has not come back yet might be the right one.
        if comm.group < 0 or not self._place(event, comm):
            comm.wait(event)

    def release(
        self,
        now_s: float,
        in_flight: Callable[[], list[InFlight]],
        *,
        room: int = MAX_CALLS,
        final: bool = False,
    ) -> bytes:
        """Return the records of the hooks that wait for nothing more.

        Args:
            now_s: on the caller's clock.
            in_flight: returns what the plugin has not seen finish.
            room: about how many records are wanted at most; ``more`` tells whether some are left.
            final: nothing more will come: give up what waits.
        """
        self.book.settle(now_s)
        self._place_unproven(float("inf") if final else now_s)
        self._join_batches()
        running: list[InFlight] | None = None
        ready: list[bytes | bytearray] = []
        self.more = False
        wanted = room
        while self._queue and wanted > 0:
            stretch = self._queue[0]
            begin, count = stretch.begin, len(stretch.is_call)
            most = end = min(count, begin + wanted)
            for number in stretch.waiting(begin, most):
                call = self._call_in(stretch, number)
                held = self._calls_held - stretch.is_call.count(1, begin, number)
                if not final and held <= MAX_CALLS:
                    if self._may_wait(call, now_s):
                        end = number
                        break
                    running = in_flight() if running is None else running
                    if self._must_wait(call, now_s, running):
                        end = number
                        break
                self._conclude(call)
            self._calls_held -= stretch.is_call.count(1, begin, end)
            ready.append(stretch.raw[begin * at.RECORD_BYTES : end * at.RECORD_BYTES])
            wanted -= end - begin
            stretch.begin = end
            if end == count:
                self._queue.popleft()
            elif end < most:
                break
        self.more = bool(self._queue) and wanted <= 0
        self.strays.let_go(now_s, final=final)
        ready.append(self.foreign.give(final=final))
        return b"".join(ready)

    def _call_in(self, stretch: Stretch, number: int) -> Call:
        """Return the call that waits in record ``number``, taken out of its run."""
        (index,) = _GROUP.unpack_from(stretch.raw, number * at.RECORD_BYTES + _GROUP_OFFSET)
        group = self.book.groups.get(index)
        while number not in stretch.calls and group is not None and group.runs:
            group.take()
        return stretch.call(number)

    def pending(self, hooks: list[InFlight], plugin: list[InFlight]) -> list[InFlight]:
        """Return what is in flight as the hooks know it: in a call, or back and still running."""
        found = list(hooks)
        known = {(one.group, one.op, one.seq, one.peer) for one in hooks}
        taken: set[int] = set()
        for one in sorted(plugin, key=lambda one: one.seq):
            call = self.book.call_in_flight(one, taken)
            if call is None or (key := (call.group, call.op, call.seq, call.peer)) in known:
                continue
            known.add(key)
            taken.add(call.index)
            found.append(
                InFlight(
                    op=call.op, group=call.group, seq=call.seq, step=call.step, peer=call.peer,
                    payload_bytes=call.payload_bytes, start_ns=call.start_ns, flags=0,
                )
            )  # fmt: skip
        return found

    @property
    def calls_tail(self) -> int | None:
        """Index of the oldest record of the hooks that is held back, None without one."""
        if not self._queue:
            return None
        oldest = self._queue[0]
        offset = oldest.begin * at.RECORD_BYTES + at.RECORD_COMMIT_OFFSET
        commit = at.U64.unpack_from(oldest.raw, offset)[0]
        return int(commit) - 1

    @property
    def events_tail(self) -> int | None:
        """Index of the oldest record of the plugin that what is held back may need, else None."""
        needed = [event.index for comm in self.book.comms.values() for event in comm.waiting]
        for stretch in self._queue:
            if stretch.oldest_event is not None:
                needed.append(stretch.oldest_event)
            for number, call in stretch.calls.items():
                if number < stretch.begin:
                    continue
                needed += [event.index for event in call.events]
                if call.event_index >= 0:
                    needed.append(call.event_index)
        return min(needed, default=None)

    def _place(self, event: Event, comm: Communicator) -> bool:
        """Give ``event`` to the one call that it can belong to; False where that is not clear."""
        found = self.book.call_of(event, comm)
        if found is None:
            return False
        call, group = found
        call.events.append(event)
        comm.newest_issue_ns = max(comm.newest_issue_ns, event.issue_ns)
        mine = [one for one in call.events if one.comm == event.comm]
        if amounts_to(call, mine, comm.size):
            self._join(call, group, mine)
        return True

    def _find_events(self, call: Call, group: JoinedGroup) -> None:
        """Look for events that came before their call."""
        for comm in self.book.comms.values():
            if not comm.waiting or (comm.group >= 0 and comm.group != group.index):
                continue
            for event in comm.waiting_within(call.start_ns, call.end_ns):
                if call.done:
                    return
                event.tried = False
                if comm.group >= 0 and self._place(event, comm):
                    comm.waiting.remove(event)

    def _place_unproven(self, now_s: float) -> None:
        for comm in self.book.comms.values():
            tried, comm.waiting = comm.waiting, []
            for event in tried:
                if not event.tried and event.seen_s < now_s:
                    event.tried = True
                    if self._place(event, comm):
                        continue
                comm.wait(event)

    def _join_batches(self) -> None:
        comms = [comm for comm in self.book.comms.values() if comm.waiting and not comm.foreign]
        if not comms:
            return
        for group in self.book.groups.values():
            events = sorted(
                (
                    event
                    for comm in comms
                    if self.book.groups_of(comm) == [group]
                    for event in comm.waiting
                    if event.issue_ns > group.trusted_from_ns
                ),
                key=lambda event: event.issue_ns,
            )
            if not events:
                continue
            alone = [
                call
                for call in group.each_call()
                if not call.events and call.start_ns > group.trusted_from_ns
            ]
            if not alone:
                continue
            signatures = {event.index: self.book.signature(event, group) for event in events}
            for call, event in join_batches(alone, events, signatures):
                comm = self.book.comms[event.comm]
                if group.fits(call, event, comm):
                    comm.waiting.remove(event)
                    call.events.append(event)
                    self._join(call, group, [event])

    def _join(
        self, call: Call, group: JoinedGroup, events: list[Event], *, bound: bool = False
    ) -> None:
        """Give ``call`` the times of ``events``; ``bound``: there may be more of them."""
        if all(one.flags & _GPU_TIME for one in events):
            released = all(one.end_ns for one in events)
            put_device_times(
                call.raw,
                call.offset,
                min(one.start_ns for one in events),
                max(one.end_ns for one in events) if released else 0,
                partial=bound or any(one.flags & _PARTIAL for one in events),
            )
        else:  # the plugin saw it, but not on the device
            put_unknown_end(call.raw, call.offset)
            self.unmeasured_calls += 1
        call.done = True
        group.calls.remove(call)
        for index in {event.comm for event in events}:
            self.book.prove(self.book.comms[index], group, call)
        for event in call.events:
            if event not in events:
                self.book.comms[event.comm].wait(event)
        call.events = events

    def _may_wait(self, call: Call, now_s: float) -> bool:
        since_s, longest_s = call.seen_s, WAIT_S
        if call.events:
            since_s, longest_s = max(event.seen_s for event in call.events), PARTS_WAIT_S
        return now_s - since_s < longest_s and not self.book.is_over(call)

    def _must_wait(self, call: Call, now_s: float, running: list[InFlight]) -> bool:
        if now_s - call.seen_s >= LONGEST_WAIT_S or self.book.is_over(call):
            return False
        return self.book.is_blocked(call, running)

    def _conclude(self, call: Call) -> None:
        """Decide about a call that waits no longer."""
        group = self.book.groups.get(call.group)
        comms = {event.comm for event in call.events}
        if group is not None and len(comms) == 1:
            if not any(is_comparable(call, event) for event in call.events):
                # Nothing tells how many events belong to it but what was issued later.
                whole = self.book.is_over(call) and call.start_ns > group.trusted_from_ns
                self._join(call, group, call.events, bound=not whole)
                return
            comm = self.book.comms[comms.pop()]
            if comm.group >= 0:
                self.book.contradict(comm)
        for event in call.events:
            self.strays.count_unjoined(self.book.comms[event.comm])
        call.events = []
        call.done = True
        put_unknown_end(call.raw, call.offset)
        self.unmeasured_calls += 1
        if group is not None:
            group.give_up(call, self._newest_ns)
