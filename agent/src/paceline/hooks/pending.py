"""Collectives that were issued and whose release was not seen yet."""

from __future__ import annotations

import sys
from typing import Any

from paceline.clock import mono_ns
from paceline.hooks.groups import GroupState
from paceline.ring.layout import FIELDS
from paceline.ring.writer import RingWriter, pack_fields
from paceline.vocabulary import P2P_OPS, Flag, RecordKind

MAX_PENDING = 4096
"""Beyond this the oldest are let go: their Works, and what those keep alive, are the job's."""
MADE_ROOM = 1024
"""So many at once, because looking through a full table takes as long as 80 collectives."""
ABANDONED_STEPS = 2
"""A send or receive that nobody can wait for any more is let go after so many steps."""
NOT_IMMEDIATE_NS = 200_000
"""A wait that begins so long after the call returned makes an operation asynchronous, where
torch does not tell: many times the host cost of a call, far below any compute worth overlapping."""

COUNTED_ONLY = -2
"""The ``slot`` of an entry that gets no record: a receive whose source must be known only so that
the numbers of its messages stay right while the level is low."""
COLLECTIVE = int(RecordKind.COLLECTIVE)
_FAILED = int(Flag.FAILED)
_ASYNC = int(Flag.ASYNC)
_POLLED = int(Flag.RELEASE_POLLED | Flag.ASYNC)
_P2P = frozenset(int(op) for op in P2P_OPS)
_REFERENCES_OF_OURS = 3
"""To a Work in ``sweep``: the entry's, the local name's, and that of getrefcount's argument."""


class Entry:
    """One collective between its arrival and its release.

    Mutable, against the house rule: it is made once per collective, on its path. What its
    record says of it is packed (``ring.layout.FIELDS``) for the same reason.
    ``work`` is set when the call returned; ``output`` is the address of the first output
    (``wait_tensor`` is matched by it, 0 unknown); ``any_source`` is the group of a receive
    whose source only its completion tells; ``returned_ns`` is when the call returned, for
    operators that do not tell whether they are asynchronous. ``timed`` is the collective's
    part on its device, where that is timed.
    """

    __slots__ = (
        "any_source", "fields", "flags", "on_cpu", "output", "returned_ns", "slot", "start_ns",
        "timed", "work",
    )  # fmt: skip

    def __init__(
        self,
        fields: bytes,
        start_ns: int,
        flags: int,
        slot: int,
        output: int,
        on_cpu: bool,
        any_source: GroupState | None,
    ) -> None:
        self.fields = fields
        self.start_ns = start_ns
        self.flags = flags
        self.slot = slot
        self.output = output
        self.on_cpu = on_cpu
        self.any_source = any_source
        self.returned_ns = 0
        self.work: Any = None
        self.timed: Any = None

    @property
    def op(self) -> int:
        """The ``Op``."""
        return self.fields[-1]

    @property
    def step(self) -> int:
        """The step in which it was issued."""
        step: int = FIELDS.unpack(self.fields)[2]
        return step


class Pending:
    """The table of pending collectives; whoever pops an entry writes its record.

    Several threads work on it: single operations on a dict are atomic.
    """

    def __init__(self, writer: RingWriter) -> None:
        self.writer = writer
        self.by_work: dict[int, Entry] = {}
        """By the id of their Work. Who pops one, because it waits for it, owes its record."""
        self._newest: Entry | None = None

    def __len__(self) -> int:
        """Return how many are pending."""
        return len(self.by_work)

    def add(self, entry: Entry) -> None:
        """Keep ``entry`` until its release is seen."""
        by_work = self.by_work
        if len(by_work) >= MAX_PENDING:
            self._make_room(entry.step)
        by_work[id(entry.work)] = self._newest = entry

    def take_output(self, address: int) -> Entry | None:
        """Pop the one whose first output lies at ``address``; 0 is nobody's."""
        if not address:
            return None
        for entry in self._snapshot():
            if entry.output == address:
                return self.by_work.pop(id(entry.work), None)
        return None

    @property
    def newest_start_ns(self) -> int:
        """When the newest collective with a Work arrived; 0: there was none."""
        return self._newest.start_ns if self._newest is not None else 0

    def waited(self, entry: Entry, join_ns: int, end_ns: int, failed: bool = False) -> None:
        """The wait for ``entry`` that began at ``join_ns`` is over."""
        flags = entry.flags
        if failed:
            flags |= _FAILED
        if entry.returned_ns and join_ns - entry.returned_ns > NOT_IMMEDIATE_NS:
            flags |= _ASYNC
        if entry.any_source is not None and not failed:
            _find_source(entry, entry.any_source)
        entry.work, slot = None, entry.slot  # as ``write`` does; a call less on the way of each
        if slot != COUNTED_ONLY:
            self.writer.complete(slot, entry.start_ns, end_ns, join_ns, entry.fields, flags)

    def sweep(
        self,
        now_ns: int,
        step: int,
        *,
        older_than_ns: int = 0,
        joined_since_ns: int = 0,
        spare_newest: bool = False,
    ) -> None:
        """Give those that have completed ``now_ns`` as their release.

        Args:
            now_ns: the time of this sweep, equal for all that it releases.
            step: the step the rank is in.
            older_than_ns: leave those that arrived later alone.
            joined_since_ns: C++ began at this time something that ends with waiting for what
                it issued (autograd under DDP). If the newest collective was issued since, and
                nobody waited for it in Python, that wait began when it was issued: nothing was
                left to compute. 0: nobody is known to have waited.
            spare_newest: leave the newest to a sweep that knows who waited for it.
        """
        if not self.by_work:
            return
        for entry in self._snapshot():
            if now_ns - entry.start_ns < older_than_ns:
                continue
            work = entry.work
            if work is None or (spare_newest and entry is self._newest):
                continue  # another thread has just written it, or is to
            if work.is_completed() or (entry.op not in _P2P and _future_done(work)):
                if self.by_work.pop(id(work), None) is not None:
                    joined = entry is self._newest and entry.start_ns >= joined_since_ns > 0
                    join_ns = entry.start_ns if joined else 0
                    self.write(entry, now_ns, join_ns, entry.flags | _POLLED)
            elif (
                entry.op in _P2P
                and step - entry.step >= ABANDONED_STEPS
                # Nobody but this table holds it in Python; C++ never waits for one that long.
                and sys.getrefcount(work) <= _REFERENCES_OF_OURS
            ):
                self._let_go(id(work))

    def close(self) -> None:
        """Write what is still pending as such."""
        for key in list(self.by_work):
            self._let_go(key)

    def write(self, entry: Entry, end_ns: int, join_ns: int, flags: int) -> None:
        """Write the record of ``entry`` and take it out of the in-flight table."""
        entry.work = None  # it keeps tensors alive
        slot = entry.slot
        if slot != COUNTED_ONLY:
            self.writer.complete(slot, entry.start_ns, end_ns, join_ns, entry.fields, flags)

    def _let_go(self, key: int) -> None:
        entry = self.by_work.pop(key, None)
        if entry is not None:
            self.write(entry, 0, 0, entry.flags | int(Flag.NOT_WAITED | Flag.ASYNC))

    def _make_room(self, step: int) -> None:
        self.sweep(mono_ns(), step)
        too_many = len(self.by_work) - (MAX_PENDING - MADE_ROOM)
        for entry in self._snapshot()[: max(too_many, 0)]:
            if entry.work is not None:
                self._let_go(id(entry.work))

    def _snapshot(self) -> list[Entry]:
        for _ in range(3):
            try:
                return list(self.by_work.values())
            except RuntimeError:  # another thread added or took one meanwhile
                continue
        return []


def _future_done(work: Any) -> bool:
    # Gloo completes the future, which wakes DDP's reducer, a moment before the Work: without
    # this look a release could be dated one whole step late.
    try:
        return bool(work.get_future().done())
    except (RuntimeError, NotImplementedError):
        return False


def _find_source(entry: Entry, group: GroupState) -> None:
    peer = group.ranks[entry.work._source_rank()]
    seq = group.next_directed_seq(peer, group.ranks[group.rank])
    payload_bytes, _, step, _, index, kind, op = FIELDS.unpack(entry.fields)
    entry.fields = pack_fields(payload_bytes, seq, step, peer, index, kind, op)
