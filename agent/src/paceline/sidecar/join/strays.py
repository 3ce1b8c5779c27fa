"""Events without a call: what they were, once no call can come for them any more."""

from __future__ import annotations

from paceline.sidecar.join.book import Book
from paceline.sidecar.join.facts import Communicator, Event
from paceline.sidecar.join.foreign import Foreign

EVENT_WAIT_S = 15.0
MAX_EVENTS = 16384
"""Beyond it the oldest of the communicator that has most are let go."""


class Strays:
    """Counts them by what they were.

    Args:
        book: groups and communicators.
        foreign: takes those of a library that calls NCCL itself.
    """

    def __init__(self, book: Book, foreign: Foreign) -> None:
        self.unjoined: dict[str, int] = {}
        """Events in a call, or between two, that could not be given to it; by communicator."""
        self.outside_calls = 0
        """Events of known communicators outside every recorded call: steps that are not recorded,
        replays of a CUDA graph."""
        self.judged_until_ns = 0
        """What was issued before was judged by an earlier sidecar."""
        self._book = book
        self._foreign = foreign

    def let_go(self, now_s: float, *, final: bool) -> None:
        """Judge the events that have waited for long enough, or are too many."""
        comms = self._book.comms.values()
        excess = sum(len(comm.waiting) for comm in comms) - MAX_EVENTS
        for comm in sorted(comms, key=lambda comm: -len(comm.waiting)) if excess > 0 else comms:
            over = 0
            for event in comm.waiting:
                late = final or comm.foreign or now_s - event.seen_s > EVENT_WAIT_S
                if not late and over >= excess:
                    break
                over += 1
                self._judge(event, comm)
            del comm.waiting[:over]
            excess -= over

    def count_unjoined(self, comm: Communicator) -> None:
        """Count an event whose call is known and went without it."""
        self.unjoined[comm.label] = self.unjoined.get(comm.label, 0) + 1

    def _judge(self, event: Event, comm: Communicator) -> None:
        if event.issue_ns < self.judged_until_ns:
            return
        if comm.foreign:
            self._foreign.take(event)
            return
        near = self._book.near(event, comm)
        if near:
            self.count_unjoined(comm)
            if comm.group >= 0 and all(group.index != comm.group for _, group in near):
                self._book.contradict(comm)
        elif comm.ever_proven:
            self.outside_calls += 1
        else:
            self._foreign.count(comm)
