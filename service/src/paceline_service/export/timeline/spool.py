"""A trace of any length in bounded memory: drawn part by part, sorted on disk, then written."""

from __future__ import annotations

import heapq
import struct
from collections import Counter
from collections.abc import Iterator
from tempfile import SpooledTemporaryFile

from paceline_service.export.perfetto import (
    CHUNK_EVENTS,
    TAIL,
    Drawing,
    Json,
    LaneBook,
    event_line,
    head_bytes,
    name_events,
    timed_events,
)

MAX_MEMORY_BYTES = 32 << 20
"""Beyond it the events are in a temporary file."""
_READ_BYTES = 1 << 16
_EVENT = struct.Struct("<qI")
"""Time and length of what follows."""


class TraceSpool:
    """Takes drawings, the steps of each later than those of the one before."""

    def __init__(self) -> None:
        self._file = SpooledTemporaryFile(max_size=MAX_MEMORY_BYTES)  # noqa: SIM115  closed by close()
        self._runs: list[tuple[int, int]] = []
        self._end = 0
        self._lanes = LaneBook()
        self._counts: Counter[str] = Counter()
        self._arrows = 0
        self._labels: dict[int, tuple[str, str]] = {}

    def add(self, drawing: Drawing) -> None:
        """Take a part of the trace; nothing of it stays in memory."""
        self._labels.update(drawing.labels)
        events = timed_events(drawing, self._lanes, self._arrows + 1)
        self._arrows += len(drawing.arrows)
        begin = self._end
        for event in events:
            line = event_line(*event)
            self._end += self._file.write(_EVENT.pack(event[0], len(line)))
            self._end += self._file.write(line)
        self._counts.update(event[1] for event in events)
        self._runs.append((begin, self._end))

    def chunks(self, other: Json) -> Iterator[bytes]:
        """Yield the JSON of the whole trace, as ``trace_chunks`` does of one drawing."""
        head = name_events(self._labels, self._lanes.used)
        counts = self._counts + Counter(event["ph"] for event in head)
        yield head_bytes(head, {**other, "not_drawn": self._lanes.missed, "events": dict(counts)})
        between = b",\n" if head else b""
        lines: list[bytes] = []
        runs = (self._run(begin, end) for begin, end in self._runs)
        for _, line in heapq.merge(*runs, key=lambda event: event[0]):
            lines.append(line)
            if len(lines) == CHUNK_EVENTS:
                yield between + b",\n".join(lines)
                between = b",\n"
                lines.clear()
        if lines:
            yield between + b",\n".join(lines)
        yield TAIL

    @property
    def events(self) -> int:
        """How many events with a time there are."""
        return self._counts.total()

    def close(self) -> None:
        """Let go of the temporary file."""
        self._file.close()

    def _run(self, begin: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the events of one drawing, read piece by piece."""
        held, place = b"", 0
        while begin < end or place < len(held):
            if len(held) - place < _EVENT.size and begin < end:
                held, place, begin = self._more(held, place, begin, end)
            at_ns, length = _EVENT.unpack_from(held, place)
            while len(held) - place < _EVENT.size + length:
                held, place, begin = self._more(held, place, begin, end)
            first = place + _EVENT.size
            place = first + length
            yield at_ns, held[first:place]

    def _more(self, held: bytes, place: int, begin: int, end: int) -> tuple[bytes, int, int]:
        self._file.seek(begin)
        more = self._file.read(min(_READ_BYTES, end - begin))
        return held[place:] + more, 0, begin + len(more)
