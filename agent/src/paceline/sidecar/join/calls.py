"""Calls of the hooks that wait for their events: columns of many, an object for one looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import compress
from operator import itemgetter, le
from typing import TYPE_CHECKING, Any

from paceline.ring import layout as at
from paceline.sidecar.join.rows import FIELDS, both, marked, marked_calls

if TYPE_CHECKING:
    from paceline.sidecar.join.facts import Event

_WORDS = at.RECORD_BYTES // 8
_HALF_WORDS = at.RECORD_BYTES // 4
_QUARTER_WORDS = at.RECORD_BYTES // 2
_START, _END, _ISSUE, _PAYLOAD = 0, 1, 3, 4
"""8-byte words of a record."""
_PEER, _GROUP, _OP = 13, 56, 59
"""Its 4-byte word and its first bytes that hold these."""
_FEW_GROUPS = 8
"""So many are told apart by a look at all records for each."""
_ONLY = [bytes(int(byte == only) for byte in range(256)) for only in range(256)]


class Call:
    """One call of the hooks whose release is not known yet."""

    __slots__ = (
        "done", "end_ns", "event_index", "events", "group", "index", "offset", "op",
        "payload_bytes", "peer", "raw", "seen_s", "seq", "start_ns", "step",
    )  # fmt: skip

    def __init__(self, raw: bytearray, offset: int, seen_s: float) -> None:
        self.raw = raw
        """Records that it lies among, at ``offset``."""
        self.offset = offset
        self.start_ns: int
        self.end_ns: int
        (
            self.start_ns, self.end_ns, _, _, self.payload_bytes, self.seq, self.step, self.peer,
            self.group, _, self.op, _, commit,
        ) = FIELDS.unpack_from(raw, offset)  # fmt: skip
        self.index = commit - 1
        self.seen_s = seen_s
        self.events: list[Event] = []
        self.event_index = -1
        """Index of the event that it was joined with, where that is the only one."""
        self.done = False


class Stretch:
    """Neighbouring records of the hooks; those before ``begin`` have left.

    A record that is still marked ``HOST_RETURN`` is a call that waits.
    """

    __slots__ = ("begin", "calls", "is_call", "oldest_event", "raw", "seen_s")

    def __init__(self, raw: bytes, seen_s: float) -> None:
        self.raw = bytearray(raw)
        self.seen_s = seen_s
        self.begin = 0
        """Number of the first record that has not left."""
        self.is_call = marked_calls(raw)
        """A byte for each record: 1 where it came as a call."""
        self.calls: dict[int, Call] = {}
        """Those that were looked at, by number of their record."""
        self.oldest_event: int | None = None
        """Index of the oldest event that a run of its calls was joined with."""

    def call(self, number: int) -> Call:
        """Return the call that record ``number`` is."""
        call = self.calls.get(number)
        if call is None:
            call = Call(self.raw, number * at.RECORD_BYTES, self.seen_s)
            self.calls[number] = call
        return call

    def waiting(self, begin: int, end: int) -> Iterator[int]:
        """Yield the numbers of the records, of some neighbours, that are calls that wait."""
        marks = marked(self.raw)
        number = marks.find(1, begin, end)
        while number >= 0:
            if self.is_call[number]:
                yield number
            number = marks.find(1, number + 1, end)

    def runs(self) -> dict[int, Run]:
        """Return the calls by group, in the order of the ring."""
        if 1 not in self.is_call:
            return {}
        words = memoryview(self.raw).cast("Q")
        issues = words[_ISSUE::_WORDS].tolist()
        if 0 in issues:  # start will be the device's
            for number in compress(range(len(issues)), self.is_call):
                words[number * _WORDS + _ISSUE] = issues[number] or words[number * _WORDS + _START]
        columns = columns_of(self.raw, (_START, _END, _PAYLOAD))
        columns[-1] = columns[-1].replace(b"\xff", b"\0")  # what is no operation is nobody's
        numbers = by_group(self.raw, self.is_call)
        return {group: Run(self, words, own, columns) for group, own in numbers.items()}


class Run:
    """Calls of one group in one stretch that nobody has looked at one by one."""

    __slots__ = (
        "_columns", "at", "end_ns", "numbers", "ops", "payload_bytes", "peers", "start_ns",
        "stretch", "words",
    )  # fmt: skip

    def __init__(
        self, stretch: Stretch, words: memoryview, numbers: list[int], columns: list[Any]
    ) -> None:
        self.stretch = stretch
        self.words = words
        """Of the stretch, 8 bytes each."""
        self.numbers = numbers
        """Of their records."""
        self.at = 0
        """Place of the first that is still in the run."""
        self._columns = columns
        self._pick()

    def _pick(self) -> None:
        self.start_ns: tuple[int, ...]
        self.end_ns: tuple[int, ...]
        pick = picker(self.numbers)
        self.start_ns, self.end_ns, self.payload_bytes, self.peers, self.ops = map(
            pick, self._columns
        )

    def sort(self) -> None:
        """Bring the calls of a fresh run into the order in which they were made."""
        if not self.is_by_start:
            self.numbers.sort(key=self._columns[0].__getitem__)
            self._pick()

    @property
    def is_by_start(self) -> bool:
        """Whether the calls were made in the order in which they came back."""
        return all(map(le, self.start_ns, self.start_ns[1:]))

    def __len__(self) -> int:
        """Return how many calls are still in the run."""
        return len(self.numbers) - self.at

    @property
    def first_start_ns(self) -> int:
        """When the first that is still in it was made."""
        return self.start_ns[self.at]

    def take(self) -> Call:
        """Take the first call out of the run."""
        self.at += 1
        return self.stretch.call(self.numbers[self.at - 1])


def columns_of(raw: bytes | bytearray, words: Iterable[int]) -> list[Any]:
    """Return columns of records: some 8-byte words, then the peers and the operations."""
    view = memoryview(raw)
    longs = view.cast("Q")
    return [
        *(longs[word::_WORDS].tolist() for word in words),
        view.cast("i")[_PEER::_HALF_WORDS].tolist(),
        bytes(raw[_OP :: at.RECORD_BYTES]),
    ]


def by_group(raw: bytes | bytearray, chosen: bytes | None = None) -> dict[int, list[int]]:
    """Return the numbers of records by their group; ``chosen``: not of those with a 0."""
    low, high = raw[_GROUP :: at.RECORD_BYTES], raw[_GROUP + 1 :: at.RECORD_BYTES]
    several = set(low)
    if len(several) > _FEW_GROUPS or any(high):
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(memoryview(raw).cast("H")[_GROUP // 2 :: _QUARTER_WORDS]):
            if chosen is None or chosen[number]:
                numbers[group].append(number)
        return numbers
    found = {}
    for group in several:
        own = low.translate(_ONLY[group])
        if chosen is not None:
            own = both(own, chosen)
        if 1 in own:
            found[group] = list(compress(range(len(own)), own))
    return found


def picker(numbers: list[int]) -> Callable[[Any], tuple[int, ...]]:
    """Return a function that picks these places of a column."""
    if len(numbers) == 1:
        return lambda column: (column[numbers[0]],)
    return itemgetter(*numbers)
