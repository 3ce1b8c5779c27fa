"""Events without a call: what they were, once no call can come for them any more."""

from __future__ import annotations

from paceline.sidecar.join.book import Book
from paceline.sidecar.join.facts import Communicator, Event
from paceline.sidecar.join.foreign import Foreign

EVENT_WAIT_S = 15.0
MAX_EVENTS = 2048
"""Of one communicator; beyond it the oldest are let go."""


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

    def let_go(self, comm: Communicator, now_s: float, *, final: bool) -> None:
        """Judge the events of ``comm`` that have waited for long enough."""
        while comm.waiting and (
            final
            or comm.foreign
            or now_s - comm.waiting[0].seen_s > EVENT_WAIT_S
            or len(comm.waiting) > MAX_EVENTS
        ):
            self._judge(comm.waiting.pop(0), comm)

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
