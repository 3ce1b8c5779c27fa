"""What is used of a trace, a piece of the file at a time and ready to be sent to another process.

Nothing here needs numpy: a process that only reads starts in a third of the time and stays small.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.event import Event, EventArgs
from paceline_service.importers.kineto.kernels import is_of_a_collective, looks_like_communication
from paceline_service.importers.kineto.piece import (
    BACKWARD,
    CALLS,
    GPU,
    HOST,
    LAUNCHES,
    OTHERS,
    PHASES,
    STEPS,
    WIDTHS,
    Piece,
    Told,
)
from paceline_service.importers.kineto.stream import TraceFile

if TYPE_CHECKING:

    class Timed(Event):
        """An event that has a name and a time."""

        name: str = ""
        ts: float = 0.0


_MOVES = 2
_IGNORED = names.ANNOTATION + 1
_MAX_CATEGORIES = 4096
_MAX_NAMES = 4096


class _Told:
    """Keeps what the file's reader tells until it goes with a piece."""

    def __init__(self) -> None:
        self.packed_bytes = 0
        self.faults: list[tuple[str, str, int]] = []

    def advanced(self, packed_bytes: int) -> None:
        """Count what was read."""
        self.packed_bytes += packed_bytes

    def add(self, reason: str, path: Path, line: int | None, message: str, count: int = 1) -> None:
        """Keep a fault."""
        self.faults.append((reason, message, count))


def read_pieces(path: Path) -> Iterator[Piece]:
    """Yield what is used of a trace; the last piece has its metadata.

    Raises:
        InputError: it cannot be opened.
    """
    told = _Told()
    file = TraceFile(path, told)
    sorter = _Sorter()
    for batch in file.batches():
        piece = sorter.piece_of(batch)
        _hand_over(told, piece)
        yield piece
    last = Piece(metadata=file.metadata, whole=file.whole)
    _hand_over(told, last)
    yield last


def _hand_over(told: _Told, piece: Piece) -> None:
    piece.packed_bytes, told.packed_bytes = told.packed_bytes, 0
    piece.faults, told.faults = told.faults, []


class _Kinds(dict[str | None, int]):
    """The kind of event by category, as the trace writes it."""

    def __missing__(self, category: str | None) -> int:
        kind = names.CATEGORIES.get((category or "").lower(), _IGNORED)
        if len(self) < _MAX_CATEGORIES:
            self[category] = kind
        return kind


class _Whats(dict[str, int]):
    """Which table an operator of the CPU belongs to, by its name."""

    def __missing__(self, operator: str) -> int:
        what = BACKWARD if operator.startswith(names.BACKWARD_OP) else HOST
        if operator == "record_param_comms" or operator.startswith(names.CALLS):
            what = CALLS
        if len(self) < _MAX_NAMES:
            self[operator] = what
        return what


class _Sorter:
    """Sorts the events of one trace into tables."""

    def __init__(self) -> None:
        self._kinds = _Kinds()
        self._whats = _Whats()
        self._threads: dict[tuple[Any, Any], int] = {}

    def piece_of(self, batch: list[Event]) -> Piece:
        """Return what is used of some events."""
        found: tuple[list[Event], ...] = tuple([] for _ in range(_IGNORED + 1))
        kinds = self._kinds
        for event in batch:
            if event.ph == "X":
                found[kinds[event.cat]].append(event)
        piece = Piece()
        usable = [_usable(events, piece) for events in found[:_IGNORED]]
        columns = [b"" for _ in WIDTHS]
        columns[GPU] = self._gpu(usable[names.KERNEL], usable[names.MEMORY], piece)
        columns[LAUNCHES] = self._launches(usable[names.LAUNCH])
        self._host(usable[names.CPU_OP], usable[names.ANNOTATION], columns, piece)
        piece.tables = columns
        return piece

    def _gpu(self, kernels: list[Timed], copies: list[Timed], piece: Piece) -> bytes:
        communicates = [names.is_communication(e.name) or _is_called(e) for e in kernels]
        talking = [e for e, talks in zip(kernels, communicates, strict=True) if talks]
        piece.kernel_names = [event.name for event in talking]
        piece.kernel_args = [_told(event.args) for event in talking]
        silent = [e for e, talks in zip(kernels, communicates, strict=True) if not talks]
        piece.compute_streams = {_stream(event) for event in silent}
        piece.suspects = _suspects(silent)
        events = kernels + copies
        stream = [_stream(e) if talks else -1 for e, talks in zip(kernels, communicates,
                  strict=True)]  # fmt: skip
        kind = communicates + [_MOVES] * len(copies)
        stream += [-1] * len(copies)
        return b"".join((_times(events), _doubles(kind), _correlations(events), _doubles(stream)))

    def _launches(self, events: list[Timed]) -> bytes:
        thread = _doubles(self._threads_of(events))
        return b"".join((_times(events), _correlations(events), thread))

    def _host(
        self, operators: list[Timed], annotations: list[Timed], columns: list[bytes],
        piece: Piece,
    ) -> None:  # fmt: skip
        whats = self._whats
        what = [whats[event.name] for event in operators]
        calls: list[Timed] = []
        if CALLS in what:
            calls = [e for e, w in zip(operators, what, strict=True) if w == CALLS]
            operators = [e for e, w in zip(operators, what, strict=True) if w != CALLS]
            what = [w for w in what if w != CALLS]
        phases: list[tuple[Timed, int]] = []
        steps: list[tuple[Timed, int]] = []
        others: list[Timed] = []
        for event in annotations:
            if event.name.startswith(names.CALLS):
                calls.append(event)
            elif (step := names.step_of(event.name)) is not None:
                steps.append((event, step))
            elif (phase := names.phase_of(event.name)) is not None:
                phases.append((event, phase))
            else:
                others.append(event)
        columns[CALLS] = _times(calls) + _doubles(self._threads_of(calls))
        piece.call_names = [event.name for event in calls]
        piece.call_args = [_told(event.args) for event in calls]
        columns[HOST] = _times(operators)
        if BACKWARD in what:
            ran = [e for e, w in zip(operators, what, strict=True) if w == BACKWARD]
            columns[BACKWARD] = _times(ran)
        columns[OTHERS] = _times(others)
        for table, numbered in ((STEPS, steps), (PHASES, phases)):
            number = _doubles([number for _, number in numbered])
            columns[table] = _times([event for event, _ in numbered]) + number

    def _threads_of(self, events: list[Timed]) -> list[int]:
        """Return of each event a number of this trace's own for its thread."""
        threads = self._threads
        try:
            return [threads.setdefault((e.pid, e.tid), len(threads)) for e in events]
        except TypeError:
            return [self._thread(event) for event in events]

    def _thread(self, event: Timed) -> int:
        try:
            return self._threads.setdefault((event.pid, event.tid), len(self._threads))
        except TypeError:  # a list or an object names no thread
            return -1


def _told(args: EventArgs | None) -> Told | None:
    return None if args is None else msgspec.structs.astuple(args)


def _is_called(kernel: Timed) -> bool:
    """Whether a kernel of no known name carries what the call of a collective said."""
    args = kernel.args
    return args is not None and args.collective is not None and is_of_a_collective(kernel.name)


def _suspects(kernels: list[Timed]) -> dict[str, int]:
    found = {
        name: 0 for name in {kernel.name for kernel in kernels} if looks_like_communication(name)
    }
    if found:
        for kernel in kernels:
            if kernel.name in found:
                found[kernel.name] += 1
    return found


def _usable(events: list[Event], piece: Piece) -> list[Timed]:
    """Return the events that have a name and a time; those that have no time are counted."""
    timed = [event for event in events if event.ts is not None and event.name is not None]
    if len(timed) < len(events):
        piece.odd_times += sum(event.name is not None for event in events) - len(timed)
    return cast("list[Timed]", timed)


def _times(events: list[Timed]) -> bytes:
    start = _doubles([event.ts for event in events])
    return start + _doubles([event.dur or 0.0 for event in events])


def _correlations(events: list[Timed]) -> bytes:
    try:
        return _doubles([event.args.correlation for event in events])  # type: ignore[union-attr]
    except (AttributeError, struct.error, OverflowError):
        return _doubles([_whole(event.args and event.args.correlation) for event in events])


def _doubles(values: Sequence[float]) -> bytes:
    """Return numbers as a column; ``array`` takes twice as long to read a list."""
    return struct.pack(f"{len(values)}d", *values)


def _stream(event: Timed) -> int:
    stream = _whole(event.args and event.args.stream)
    return stream if stream >= 0 else _whole(event.tid)


def _whole(value: object) -> int:
    if type(value) is int and 0 <= value < 1 << 53:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 16 else -1
