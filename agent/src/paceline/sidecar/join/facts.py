"""What is joined: calls of the hooks, events of the plugin, groups and communicators."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from paceline.sidecar.join.calls import Call, Run
from paceline.vocabulary import P2P_OPS, Op

_ANY = frozenset(Op)
_SETS = frozenset({Op.ALL_TO_ALL, Op.GATHER, Op.SCATTER})
"""Operations that NCCL makes of sends and receives."""
CALLS_OF_EVENT: dict[int, frozenset[Op]] = {
    Op.ALL_REDUCE: frozenset({Op.ALL_REDUCE, Op.BARRIER}),
    Op.ALL_GATHER: frozenset({Op.ALL_GATHER}),
    Op.REDUCE_SCATTER: frozenset({Op.REDUCE_SCATTER}),
    Op.BROADCAST: frozenset({Op.BROADCAST, Op.ALL_GATHER}),  # all_gather of uneven parts
    Op.REDUCE: frozenset({Op.REDUCE, Op.REDUCE_SCATTER}),
    Op.SEND: _SETS | {Op.SEND},
    Op.RECV: _SETS | {Op.RECV},
    Op.ALL_TO_ALL: frozenset({Op.ALL_TO_ALL}),
    Op.GATHER: frozenset({Op.GATHER}),
    Op.SCATTER: frozenset({Op.SCATTER}),
}
"""By the operation that NCCL reports: the operations that torch may have called it for."""
_BARRIER_BYTES = 64
"""torch makes a barrier of an all_reduce of one number."""
_MAX_GIVEN_UP = 256
_NEVER_NS = 1 << 64
_PARTS_OF_WHOLE = frozenset({Op.ALL_GATHER, Op.REDUCE_SCATTER})


@dataclass(slots=True, eq=False)
class Event:
    """One operation as the plugin saw it on the device."""

    comm: int
    op: int
    peer: int
    """Rank in the communicator; -1 none."""
    payload_bytes: int
    seq: int
    start_ns: int
    end_ns: int
    issue_ns: int
    flags: int
    index: int
    seen_s: float
    tried: bool = False
    """Whether a call was looked for since the last one that it might be in."""


@dataclass(slots=True, eq=False)
class Communicator:
    """A communicator of NCCL and the group that it was found to belong to."""

    index: int
    label: str
    rank: int
    size: int
    group: int = -1
    """The group that it is bound to; -1: none."""
    whole: bool = False
    """Whether it is of all ranks of that group, and not of one pair."""
    candidate: int = -1
    proofs: int = 0
    ever_proven: bool = False
    foreign: bool = False
    strays: int = 0
    peers: set[int] = field(default_factory=set)
    """Peers of the group with which it was seen to send or receive; -1: collectives."""
    newest_issue_ns: int = 0
    """Of the events that were found in a call: a batch that was launched later proves nothing."""
    marked_issue_ns: int = 0
    settled_issue_ns: int = 0
    """Everything issued before this has been read, unless it was lost."""
    waiting: list[Event] = field(default_factory=list)
    """Events without a call, by time of issue."""

    def wait(self, event: Event) -> None:
        """Keep ``event`` until its call is seen."""
        if not self.waiting or self.waiting[-1].issue_ns <= event.issue_ns:
            self.waiting.append(event)
        else:
            bisect.insort(self.waiting, event, key=_issue_ns)

    def waiting_within(self, start_ns: int, end_ns: int) -> list[Event]:
        """Return the events without a call that were issued in a stretch of time."""
        first = bisect.bisect_left(self.waiting, start_ns, key=_issue_ns)
        last = bisect.bisect_right(self.waiting, end_ns, lo=first, key=_issue_ns)
        return self.waiting[first:last]


@dataclass(slots=True, eq=False)
class JoinedGroup:
    """A process group of the hooks, and its calls that wait for their events."""

    index: int
    ranks: tuple[int, ...]
    position: int
    """Of the own rank in it; -1 none."""
    calls: list[Call] = field(default_factory=list)
    """By start."""
    runs: deque[Run] = field(default_factory=deque)
    """More calls, all later than ``calls``; only columns until one of them has to be looked at."""
    given_up: list[Call] = field(default_factory=list)
    """The newest of those whose events never came, for events that come too late."""
    given_up_until_ns: int = 0
    trusted_from_ns: int = 0
    """What was called or issued before is not joined by order: something of it is missing."""

    def add(self, call: Call) -> None:
        """Let ``call`` wait for its events."""
        if not self.calls or self.calls[-1].start_ns <= call.start_ns:
            self.calls.append(call)
        else:
            bisect.insort(self.calls, call, key=_start_ns)

    def add_run(self, run: Run) -> None:
        """Let calls wait that are by start among themselves."""
        last_ns = self.calls[-1].start_ns if self.calls else 0
        if self.runs:
            last_ns = self.runs[-1].start_ns[-1]
        if len(run) and run.first_start_ns < last_ns:
            # Several threads: where what they made overlaps, only the list keeps it by start.
            self.look_until(_NEVER_NS)
            while len(run) and run.first_start_ns < last_ns:
                self.add(run.take())
        if len(run):
            self.runs.append(run)

    def take(self) -> Call:
        """Move the first call of the runs to ``calls``."""
        run = self.runs[0]
        call = run.take()
        if not len(run):
            self.runs.popleft()
        self.add(call)
        return call

    def look_until(self, issue_ns: int) -> None:
        """Have every call in ``calls`` that was made until ``issue_ns``."""
        while self.runs and self.runs[0].first_start_ns <= issue_ns:
            self.take()

    def each_call(self) -> Iterator[Call]:
        """Yield every waiting call by start."""
        yield from self.calls
        while self.runs:
            yield self.take()

    def give_up(self, call: Call, newest_ns: int) -> None:
        """Let ``call`` wait no longer; what was issued up to now may belong to it."""
        self.calls.remove(call)
        self.given_up.append(call)
        del self.given_up[:-_MAX_GIVEN_UP]
        self.given_up_until_ns = max(self.given_up_until_ns, call.end_ns)
        self.trusted_from_ns = newest_ns

    def around(self, issue_ns: int) -> Iterator[Call]:
        """Yield the waiting calls that were under way at ``issue_ns``."""
        self.look_until(issue_ns)
        for call in self.calls:
            if call.start_ns > issue_ns:
                break
            if call.end_ns >= issue_ns:
                yield call

    def around_given_up(self, issue_ns: int) -> list[Call]:
        """Return the given-up calls that were under way at ``issue_ns``."""
        if issue_ns > self.given_up_until_ns:
            return []
        return [call for call in self.given_up if call.start_ns <= issue_ns <= call.end_ns]

    def may_own(self, comm: Communicator) -> bool:
        """Whether size and own position fit; two ranks may have one for sending alone."""
        if self.position < 0:
            return False
        return (comm.size == len(self.ranks) and comm.rank == self.position) or comm.size == 2

    def fits(self, call: Call, event: Event, comm: Communicator) -> bool:
        """Whether ``event`` may be what, or part of what, ``call`` made NCCL do."""
        if call.op != Op.UNKNOWN and call.op not in CALLS_OF_EVENT.get(event.op, _ANY):
            return False
        whole = comm.size == len(self.ranks) and comm.rank == self.position
        if not whole and (call.op not in P2P_OPS or not self._is_pair(call, comm)):
            return False
        named = call.op == event.op and event.peer >= 0 and call.peer >= 0
        if whole and named and self.global_rank(event.peer) != call.peer:
            return False
        if call.op == Op.BARRIER:
            return event.payload_bytes <= _BARRIER_BYTES
        return not is_comparable(call, event) or event.payload_bytes <= call.payload_bytes

    def global_rank(self, position: int) -> int:
        """Return the rank at ``position``, -1 where there is none."""
        return self.ranks[position] if 0 <= position < len(self.ranks) else -1

    def _is_pair(self, call: Call, comm: Communicator) -> bool:
        # torch numbers the two ranks of a communicator for one pair by their places in the group.
        if call.peer not in self.ranks:
            return False
        return comm.rank == int(self.position > self.ranks.index(call.peer))


def is_comparable(call: Call, event: Event) -> bool:
    """Whether the bytes of both are counted alike."""
    # The plugin says 0 for a type whose size it does not know.
    return call.op == event.op and (event.payload_bytes > 0 or call.payload_bytes == 0)


def amounts_to(call: Call, events: list[Event], size: int) -> bool:
    """Whether ``events`` of one communicator of ``size`` ranks are all that ``call`` did."""
    if call.op == Op.BARRIER:
        return len(events) == 1
    if not all(is_comparable(call, event) for event in events):
        return False
    total_bytes = sum(event.payload_bytes for event in events)
    if total_bytes == call.payload_bytes:
        return True
    return call.op in _PARTS_OF_WHOLE and total_bytes * size == call.payload_bytes


def event_of(fields: tuple[int, ...], seen_s: float) -> Event:
    """Return one record of a plugin's ring, as ``FIELDS`` unpacks it, as an event."""
    start, end, _, issue, payload, seq, _, peer, group, _, code, flags, commit = fields
    return Event(group, code, peer, payload, seq, start, end, issue, flags, commit - 1, seen_s)


def _issue_ns(event: Event) -> int:
    return event.issue_ns


def _start_ns(call: Call) -> int:
    return call.start_ns
