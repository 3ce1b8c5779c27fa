"""A timeline as Chrome trace events, which Perfetto and chrome://tracing open.

The object form: ``{"displayTimeUnit","otherData","traceEvents"}``. Every event of the phase ``X``
has ``ts`` and ``dur`` in microseconds with ns behind the point; the events are sorted by ``ts``;
slices of one thread follow each other and never overlap, because viewers draw wrongly what does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

import msgspec

from paceline.dataclass import dataclass

MAX_LANES = 32
"""Threads of one kind under a rank; what overlaps even more is counted and not drawn."""
LANES_PER_RANK = 1000
CHUNK_EVENTS = 2048
TAIL = b"]}\n"
_encode = msgspec.json.encode
Json = dict[str, Any]

KINDS = ("step", "phase", "within phases", "collective", "wait")
"""Kinds of threads under a rank, from above to below."""


@dataclass(slots=True, kw_only=True, eq=False)
class Slice:
    """Something that lasts; times are ns from the beginning of the timeline."""

    start_ns: int
    end_ns: int
    rank: int
    kind: int
    """Place in ``KINDS``."""
    name: str
    args: Json
    lane: int = -1
    """Which of the threads of its kind it is drawn on; found here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happens at one instant."""

    at_ns: int
    rank: int
    kind: int
    name: str
    category: str
    args: Json
    on: Slice | None = None
    """The slice that it belongs to; else it is drawn on the first thread of its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrow:
    """From the slice of the last arriver to that of the rank that waited longest."""

    source: Slice
    target: Slice


@dataclass(slots=True, kw_only=True)
class Drawing:
    """What is to be drawn."""

    labels: Mapping[int, tuple[str, str]]
    """Name and label of each drawn rank."""
    slices: list[Slice] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)


def trace_chunks(drawing: Drawing, other: Json) -> Iterator[bytes]:
    """Yield the JSON of a drawing in chunks.

    Args:
        drawing: is sorted in place.
        other: goes under ``otherData``, with ``not_drawn`` and ``events`` added.
    """
    lanes = LaneBook()
    events = timed_events(drawing, lanes)
    head = name_events(drawing.labels, lanes.used)
    counts = Counter(event["ph"] for event in head)
    counts.update(event[1] for event in events)
    yield head_bytes(head, {**other, "not_drawn": lanes.missed, "events": dict(counts)})
    between = b",\n" if head else b""
    for start in range(0, len(events), CHUNK_EVENTS):
        lines = [event_line(*event) for event in events[start : start + CHUNK_EVENTS]]
        yield between + b",\n".join(lines)
        between = b",\n"
    yield TAIL


def head_bytes(names: list[Json], other: Json) -> bytes:
    """Return the JSON of a trace up to its first event with a time."""
    named = b",\n".join(_encode(event) for event in names)
    return b'{"displayTimeUnit":"ms","otherData":' + _encode(other) + b',"traceEvents":[' + named


class LaneBook:
    """Finds threads for slices, so that those of one thread never overlap.

    A slice goes to the lowest lane of its kind and rank on which everything before has ended.
    Slices come sorted; those of a further drawing may begin before the last ones of the one
    before it, and then take another lane.
    """

    def __init__(self) -> None:
        self._ends_ns: dict[tuple[int, int], list[int]] = {}
        self.used: set[tuple[int, int, int]] = set()
        """Rank, kind and lane of each thread."""
        self.missed = 0
        """Slices for which there was no lane."""

    def place(self, slices: list[Slice]) -> None:
        """Give each of the slices a lane where one is free."""
        for one in slices:
            ends_ns = self._ends_ns.setdefault((one.rank, one.kind), [])
            lane = next((n for n, end_ns in enumerate(ends_ns) if end_ns <= one.start_ns), -1)
            if lane < 0:
                if len(ends_ns) == MAX_LANES:
                    self.missed += 1
                    continue
                lane = len(ends_ns)
                ends_ns.append(0)
            ends_ns[lane] = one.end_ns
            one.lane = lane
            self.used.add((one.rank, one.kind, lane))


Timed = tuple[int, str, Any, int]
"""Time, phase, item and thread of an event."""


def timed_events(drawing: Drawing, lanes: LaneBook, first_arrow: int = 1) -> list[Timed]:
    """Return every event with a time, sorted by it; lanes are found on the way.

    Args:
        drawing: its slices are sorted in place.
        lanes: of this drawing and those before it.
        first_arrow: number of the first arrow, unlike any of the drawings before.
    """
    drawing.slices.sort(key=lambda one: (one.start_ns, -one.end_ns, one.rank, one.kind))
    lanes.place(drawing.slices)
    lanes.used.update((mark.rank, mark.kind, 0) for mark in drawing.marks)
    return sorted(_timed(drawing, first_arrow), key=lambda event: event[0])


def _timed(drawing: Drawing, first_arrow: int) -> Iterator[Timed]:
    for one in drawing.slices:
        if one.lane >= 0:
            yield one.start_ns, "X", one, _thread(one.rank, one.kind, one.lane)
    for mark in drawing.marks:
        lane = max(mark.on.lane, 0) if mark.on is not None else 0
        yield mark.at_ns, "i", mark, _thread(mark.rank, mark.kind, lane)
    for number, arrow in enumerate(drawing.arrows, first_arrow):
        source, target = arrow.source, arrow.target
        if min(source.lane, target.lane) < 0:
            continue
        # Both ends lie within their slices, and an arrow never goes back in time.
        to_ns = max(target.start_ns, source.start_ns)
        if to_ns > target.end_ns:
            continue
        yield source.start_ns, "s", number, _thread(source.rank, source.kind, source.lane)
        yield to_ns, "f", number, _thread(target.rank, target.kind, target.lane)


def event_line(at_ns: int, phase: str, item: Any, thread: int) -> bytes:
    """Return an event as JSON."""
    event: Json = {"ph": phase, "pid": (thread // LANES_PER_RANK), "tid": thread}
    if phase == "X":
        event |= {"name": item.name, "cat": KINDS[item.kind], "args": item.args}
        duration = _us(item.end_ns - item.start_ns)
        return _encode(event)[:-1] + f',"ts":{_us(at_ns)},"dur":{duration}}}'.encode()
    if phase == "i":
        event |= {"s": "t", "name": item.name, "cat": item.category, "args": item.args}
    else:
        event |= {"id": item, "name": "held up", "cat": "last arriver"}
        if phase == "f":
            event["bp"] = "e"
    return _encode(event)[:-1] + f',"ts":{_us(at_ns)}}}'.encode()


def _us(time_ns: int) -> str:
    """Return microseconds as text, exact to the ns."""
    return f"{time_ns // 1000}.{time_ns % 1000:03d}"


def _thread(rank: int, kind: int, lane: int) -> int:
    """Return the number of a thread: unlike any other of the whole trace, and never 0."""
    return (rank + 1) * LANES_PER_RANK + 1 + kind * MAX_LANES + lane


def name_events(
    labels: Mapping[int, tuple[str, str]], used: set[tuple[int, int, int]]
) -> list[Json]:
    """Return the metadata events: names and order of processes and threads."""
    events: list[Json] = []

    def tell(name: str, pid: int, tid: int, key: str, value: object) -> None:
        events.append({"ph": "M", "name": name, "pid": pid, "tid": tid, "args": {key: value}})

    for rank, (name, label) in sorted(labels.items()):
        pid = rank + 1
        tell("process_name", pid, pid * LANES_PER_RANK, "name", name)
        tell("process_sort_index", pid, pid * LANES_PER_RANK, "sort_index", rank)
        tell("process_labels", pid, pid * LANES_PER_RANK, "labels", label)
    for rank, kind, lane in sorted(used):
        tid = _thread(rank, kind, lane)
        title = KINDS[kind] if not lane else f"{KINDS[kind]} {lane + 1}"
        tell("thread_name", rank + 1, tid, "name", title)
        tell("thread_sort_index", rank + 1, tid, "sort_index", kind * MAX_LANES + lane)
    return events
