"""Collectives on a device between their issue and the time when their marks are read.

What is exact, what is a bound and what stays unknown: docs/device-time.md.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from paceline.hooks.device_marks import Mark
from paceline.hooks.pending import Entry
from paceline.ring.writer import RingWriter
from paceline.vocabulary import P2P_OPS, Flag

MAX_OUTPUTS = 1024
"""Outputs of functional collectives that nobody has waited for; the oldest is forgotten."""
PASSED_BY_NS = 1_000_000_000
"""A collective whose release nobody can see counts as over when the device has come to work
that was issued so much later. One that hangs stops its rank before long."""
C10D = "torch.distributed.distributed_c10d"

_ASYNC = int(Flag.ASYNC)
_GPU_TIME = int(Flag.GPU_TIME)
_BOUND = int(Flag.GPU_TIME | Flag.PARTIAL)
_HOST_RETURN = int(Flag.HOST_RETURN)
_NOT_WAITED = int(Flag.NOT_WAITED)
_P2P = frozenset(int(op) for op in P2P_OPS)


class Timed:
    """One collective on a device; it holds neither its Work nor its tensors.

    Mutable, as ``Entry`` is: it is made on the path of the collective.
    """

    __slots__ = ("arrival", "bound", "closer", "entry", "joined", "release", "tells_async")

    def __init__(self, entry: Entry, arrival: Mark) -> None:
        self.entry = entry
        self.arrival = arrival
        self.release: Mark | None = None
        self.bound = False
        """Whether ``release`` may lie behind the true release."""
        self.joined = False
        """Whether its stream stood still from the arrival on."""
        self.closer: Mark | None = None
        """When the device has come here the collective is over."""
        self.tells_async = True


class DeviceCollectives:
    """Those that were issued and not written yet.

    Threads of the job call ``arrived``, ``returned``, ``waited``, ``output_waited`` and
    ``backward_ended``; the rest is the poller's.

    Args:
        record: marks the current stream of a device; None when that cannot be had.
        coalescing: whether operations are being gathered to be launched later.
    """

    def __init__(
        self, record: Callable[[int], Mark | None], coalescing: Callable[[], bool]
    ) -> None:
        self._record = record
        self._coalescing = coalescing
        self._returned: deque[Timed] = deque()
        self._backwards: deque[tuple[int, Mark]] = deque()
        self._open: list[Timed] = []
        self._closed_to_ns = 0
        self._newest = threading.local()
        self.works_seen = False
        """Whether torch gave a Work for one that may have been synchronous."""
        self.outputs: dict[int, Timed] = {}
        """By the address of the first output, for ``wait_tensor``."""

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open) + len(self._returned)

    def arrived(self, entry: Entry, device: int) -> None:
        """``entry`` is about to be issued from this thread."""
        mark = self._record(device)
        if mark is not None:
            entry.timed = Timed(entry, mark)

    def returned(self, entry: Entry, *, has_work: bool, tells_async: bool, now_ns: int) -> None:
        """The call came back.

        Args:
            entry: one that ``arrived``.
            has_work: whether torch gave a Work to wait for.
            tells_async: whether ``entry.flags`` say what the caller asked for.
            now_ns: when.
        """
        timed: Timed = entry.timed
        entry.returned_ns = now_ns
        timed.tells_async = tells_async
        if has_work:
            if not (tells_async and entry.flags & _ASYNC):
                self.works_seen = True
                self._newest.timed = timed
        elif tells_async and not entry.flags & _ASYNC and not self._coalescing():
            # It ran on the stream that is current here.
            timed.release = self._record(timed.arrival.device)
            timed.joined = timed.release is not None
        self._returned.append(timed)
        if entry.output and timed.release is None:
            if len(self.outputs) >= MAX_OUTPUTS:
                self.outputs.pop(next(iter(self.outputs)), None)
            self.outputs[entry.output] = timed

    def waited(self, module: str) -> None:
        """A Work was waited for by code of ``module``: the current stream waits for it now.

        Nobody but torch's own functions is sure to wait for what this thread issued last: they
        issue one, and wait for it at once.
        """
        timed: Timed | None = getattr(self._newest, "timed", None)
        if timed is None:
            return
        self._newest.timed = None
        if module == C10D and timed.release is None:
            # Nothing was put on this stream between the call and its wait.
            timed.tells_async = timed.joined = True
            timed.release = self._record(timed.arrival.device)

    def output_waited(self, address: int) -> None:
        """The current stream now waits for the collective whose first output lies there."""
        timed = self.outputs.pop(address, None)
        if timed is not None and timed.release is None:
            timed.bound = True
            timed.release = self._record(timed.arrival.device)

    def backward_ended(self, begin_ns: int, mark: Mark) -> None:
        """Autograd ran since ``begin_ns``; at ``mark`` the stream waits for what it issued."""
        self._backwards.append((begin_ns, mark))

    def poll(self, writer: RingWriter, reached_ns: int) -> None:
        """Write those whose times are known, the earliest issued first.

        Args:
            writer: where to.
            reached_ns: the device has come to work that was issued then.
        """
        while self._returned:
            self._open.append(self._returned.popleft())
        while self._backwards:
            self._close_backward(*self._backwards.popleft())
        still_open = []
        for timed in self._open:
            if self._is_over(timed, reached_ns):
                self._write(timed, writer, 0)
            else:
                still_open.append(timed)
        self._open = still_open

    def give_up(self, writer: RingWriter, flags: int) -> None:
        """Write all that are open with what is known; ``flags`` are for those in flight."""
        while self._returned:
            self._open.append(self._returned.popleft())
        for timed in self._open:
            self._write(timed, writer, flags)
        self._open.clear()
        self._backwards.clear()
        self.outputs.clear()

    def _close_backward(self, begin_ns: int, mark: Mark) -> None:
        inside = [timed for timed in self._open if timed.entry.start_ns <= mark.before_ns]
        for timed in inside:
            if timed.release is None and timed.closer is None:
                timed.closer = mark
        newest = max(inside, key=lambda timed: timed.entry.start_ns, default=None)
        if newest is None or newest.release is not None or newest.entry.op in _P2P:
            return
        if newest.entry.start_ns >= max(begin_ns, self._closed_to_ns):
            # See docs/adr/0032-where-ddp-waits.md.
            newest.release = mark
            newest.bound = newest.joined = True

    def _is_over(self, timed: Timed, reached_ns: int) -> bool:
        if not timed.arrival.host_ns:
            return False
        if timed.release is not None:
            return timed.release.host_ns > 0
        if timed.closer is not None:
            return timed.closer.host_ns > 0
        return reached_ns - timed.entry.start_ns >= PASSED_BY_NS

    def _write(self, timed: Timed, writer: RingWriter, open_flags: int) -> None:
        entry, arrival, release = timed.entry, timed.arrival, timed.release
        self._closed_to_ns = max(self._closed_to_ns, entry.start_ns)
        if entry.output and self.outputs.get(entry.output) is timed:
            self.outputs.pop(entry.output, None)
        flags, join_ns = entry.flags, 0
        if not timed.tells_async:
            flags |= _ASYNC
        if not arrival.host_ns:
            start_ns, end_ns = entry.start_ns, entry.returned_ns
            flags |= _HOST_RETURN
            if open_flags & _NOT_WAITED:  # in flight when the process ended
                end_ns = 0
                flags = (flags & ~_HOST_RETURN) | open_flags
        else:
            start_ns, end_ns = arrival.host_ns, 0
            flags |= _GPU_TIME
            if release is not None and release.host_ns:
                end_ns = start_ns + max(release.axis_ns - arrival.axis_ns, 0)
                flags |= _BOUND if timed.bound else 0
                join_ns = start_ns if timed.joined else 0
            elif release is not None or timed.closer is not None:
                flags |= open_flags
        try:
            writer.append(start_ns, end_ns, join_ns, entry.start_ns, entry.fields, flags)
        finally:
            writer.finish(entry.slot)
