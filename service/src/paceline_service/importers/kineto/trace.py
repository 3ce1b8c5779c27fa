"""What one trace file says, as columns."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.event import Args, Event
from paceline_service.importers.kineto.stream import TraceFile

COMPUTE, COMMUNICATION, MEMORY = range(3)
_MAX_NS = 1 << 61
_EPOCH_NS = 1_000_000_000_000_000_000
"""Times before September 2001 are no time of day; they count from when the machine started."""
_CALLS = ("c10d::", "nccl:", "gloo:")


class Columns:
    """Rows of integers that grow, 8 bytes a value."""

    def __init__(self, width: int) -> None:
        self._values = array("q")
        self._width = width

    def add(self, *row: int) -> None:
        """Append a row."""
        self._values.extend(row)

    def extend(self, table: Int64Array) -> None:
        """Append rows, shape (N, width)."""
        self._values.frombytes(np.ascontiguousarray(table, dtype=np.int64).tobytes())

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._values) // self._width

    def arrays(self) -> list[Int64Array]:
        """Return the columns."""
        table = (
            np.frombuffer(self._values, dtype=np.int64) if self._values else np.zeros(0, np.int64)
        )
        return [column.copy() for column in table.reshape(-1, self._width).T]


@dataclass(slots=True)
class Trace:
    """One file: times in ns on its rank's clock; ``thread`` is a number of this trace's own.

    Attributes:
        activities: what ran on the GPU: start, end, kind (``COMPUTE``...), correlation.
        launches: correlation, start, end, thread.
        kernels: of communication: start, end, correlation, stream; ``kernel_names`` and
            ``kernel_args`` beside them.
        calls: of c10d and its backends on the host: start, end, thread; ``call_names`` and
            ``call_args`` beside them.
        host: what operators ran on the CPU: start, end.
        backward: operators that the autograd engine ran: start, end.
        steps: number, start, end.
        phases: code, start, end.
    """

    path: Path
    rank: int = -1
    world_size: int = 0
    identity: str = ""
    host_name: str = ""
    clock: str = ""
    """What its times are counted by; traces of one clock can be compared directly."""
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    group_count: int = 0
    whole: bool = True
    activities: Columns = field(default_factory=lambda: Columns(4))
    launches: Columns = field(default_factory=lambda: Columns(4))
    kernels: Columns = field(default_factory=lambda: Columns(4))
    kernel_names: list[str] = field(default_factory=list)
    kernel_args: list[Args | None] = field(default_factory=list)
    calls: Columns = field(default_factory=lambda: Columns(3))
    call_names: list[str] = field(default_factory=list)
    call_args: list[Args | None] = field(default_factory=list)
    host: Columns = field(default_factory=lambda: Columns(2))
    backward: Columns = field(default_factory=lambda: Columns(2))
    steps: Columns = field(default_factory=lambda: Columns(3))
    phases: Columns = field(default_factory=lambda: Columns(3))
    events: int = 0
    first_ns: int = _MAX_NS
    last_ns: int = 0
    base_ns: int = 0
    """What is to be added to its times to have the time of day; 0 where they are that already."""

    @property
    def window_ns(self) -> tuple[int, int] | None:
        """First and last time of day, ns since 1970; None where the trace does not tell it."""
        if not self.events:
            return None
        return (self.first_ns, self.last_ns) if self.first_ns >= _EPOCH_NS else None

    @property
    def wall_offset_ns(self) -> int | None:
        """The time of day less the rank's clock; None where the trace does not tell it."""
        return self.base_ns if self.window_ns is not None else None

    def forget(self) -> None:
        """Let go of the columns once a timeline is made of them: they are most of a trace."""
        self.activities, self.launches, self.kernels = Columns(4), Columns(4), Columns(4)
        self.calls, self.host, self.backward = Columns(3), Columns(2), Columns(2)
        self.kernel_names, self.call_names = [], self.call_names[:1]
        self.kernel_args, self.call_args = [], []

    def launch_of(
        self, correlation: Int64Array
    ) -> tuple[BoolArray, tuple[Int64Array, Int64Array, Int64Array]]:
        """Return which activities have a launch, and its start, end and thread (else 0)."""
        key, start, end, thread = self.launches.arrays()
        if not len(key):
            zeros = np.zeros(len(correlation), dtype=np.int64)
            return np.zeros(len(correlation), dtype=np.bool_), (zeros, zeros, zeros)
        order = np.argsort(key, kind="stable")
        found = order[np.minimum(np.searchsorted(key[order], correlation), len(key) - 1)]
        known = key[found] == correlation
        return known, (
            np.where(known, start[found], 0),
            np.where(known, end[found], 0),
            np.where(known, thread[found], -1),
        )


def read_trace(path: Path, faults: Faults) -> Trace:
    """Read one trace; what is wrong with it is in ``faults``.

    Raises:
        InputError: it cannot be opened.
    """
    trace = Trace(path=path)
    file = TraceFile(path, faults)
    reader = _Reader(trace)
    for batch in file.batches():
        for event in batch:
            reader.take(event)
    if reader.odd_times:
        message = f"{reader.odd_times:,} events have no usable time; they are left out"
        faults.add("invalid", path, None, message)
    trace.whole = file.whole
    _take_metadata(trace, file.metadata)
    return trace


class _Reader:
    def __init__(self, trace: Trace) -> None:
        self.odd_times = 0
        self._trace = trace
        self._threads: dict[tuple[Any, Any], int] = {}
        self._take = {
            names.KERNEL: self._take_kernel,
            names.MEMORY: self._take_memory,
            names.LAUNCH: self._take_launch,
            names.CPU_OP: self._take_call,
            names.ANNOTATION: self._take_annotation,
        }
        self._category: dict[object, int | None] = {}

    def take(self, event: Event) -> None:
        """Keep what is used of one event."""
        if event.ph != "X" or type(event.cat) is not str or type(event.name) is not str:
            return
        kind = self._category.get(event.cat, -1)
        if kind == -1:
            kind = self._category[event.cat] = names.CATEGORIES.get(event.cat.lower())
        if kind is None:
            return
        start, length = _ns(event.ts), _ns(event.dur if event.dur is not None else 0)
        if start is None or length is None or length < 0:
            self.odd_times += 1
            return
        trace = self._trace
        trace.events += 1
        # Time 0 means unknown inside, and a clock may begin there.
        start += 1
        trace.first_ns, trace.last_ns = (
            min(trace.first_ns, start),
            max(trace.last_ns, start + length),
        )
        self._take[kind](event, start, start + length)

    def _take_kernel(self, event: Event, start: int, end: int) -> None:
        trace, correlation = self._trace, _whole(event.args and event.args.correlation)
        if not names.is_communication(event.name):
            trace.activities.add(start, end, COMPUTE, correlation)
            return
        stream = _whole(event.args and event.args.stream)
        trace.activities.add(start, end, COMMUNICATION, correlation)
        trace.kernels.add(start, end, correlation, stream if stream >= 0 else _whole(event.tid))
        trace.kernel_names.append(event.name)
        trace.kernel_args.append(event.args)

    def _take_memory(self, event: Event, start: int, end: int) -> None:
        correlation = _whole(event.args and event.args.correlation)
        self._trace.activities.add(start, end, MEMORY, correlation)

    def _take_launch(self, event: Event, start: int, end: int) -> None:
        correlation = _whole(event.args and event.args.correlation)
        if correlation >= 0:
            self._trace.launches.add(correlation, start, end, self._thread(event))

    def _take_call(self, event: Event, start: int, end: int) -> None:
        name, trace = event.name, self._trace
        if name == "record_param_comms" or name.startswith(_CALLS):
            trace.calls.add(start, end, self._thread(event))
            trace.call_names.append(name)
            trace.call_args.append(event.args)
            return
        trace.host.add(start, end)
        if name.startswith(names.BACKWARD_OP):
            trace.backward.add(start, end)

    def _take_annotation(self, event: Event, start: int, end: int) -> None:
        name, trace = event.name, self._trace
        if name.startswith(_CALLS):
            self._take_call(event, start, end)
        elif (step := names.step_of(name)) is not None:
            trace.steps.add(step, start, end)
        elif (phase := names.phase_of(name)) is not None:
            trace.phases.add(phase, start, end)

    def _thread(self, event: Event) -> int:
        key = (_key(event.pid), _key(event.tid))
        return self._threads.setdefault(key, len(self._threads))


def _key(value: object) -> object:
    return None if isinstance(value, list | dict) else value


def _take_metadata(trace: Trace, metadata: dict[str, object]) -> None:
    trace.identity = str(metadata.get("trace_id") or "")
    trace.host_name = str(metadata.get("host_name") or "")
    base_ns = metadata.get("baseTimeNanoseconds")
    if type(base_ns) is int and 0 < base_ns < _MAX_NS and trace.last_ns < _EPOCH_NS:
        trace.first_ns, trace.last_ns = trace.first_ns + base_ns, trace.last_ns + base_ns
        trace.base_ns = base_ns
    info = metadata.get("distributedInfo")
    info = info if isinstance(info, dict) else {}
    rank, world_size = info.get("rank"), info.get("world_size")
    if type(world_size) is int and world_size > 0:
        trace.world_size = world_size
    named = names.rank_of(trace.path)
    trace.rank = rank if type(rank) is int and rank >= 0 else -1 if named is None else named
    configs = info.get("pg_config")
    for config in configs if isinstance(configs, list) else []:
        if isinstance(config, dict):
            trace.group_count += 1
            ranks = ranks_of(config.get("ranks"))
            if ranks and len(ranks) == config.get("pg_size", len(ranks)):
                trace.groups[str(config.get("pg_name"))] = ranks


def ranks_of(value: object) -> tuple[int, ...]:
    """Return a list of ranks, given as one or as text; empty where it is cut short or is none."""
    if isinstance(value, str):
        parts = [part.strip() for part in value.strip("[] ").split(",")]
        if not all(part.isdecimal() and len(part) < 10 for part in parts):
            return ()
        return tuple(int(part) for part in parts)
    if isinstance(value, list) and all(type(rank) is int and rank >= 0 for rank in value):
        return tuple(value)
    return ()


def _ns(microseconds: object) -> int | None:
    """Return a time in ns; one that is given as a fraction since 1970 is exact to 0.25 us."""
    if type(microseconds) is int:
        value = microseconds * 1000
    elif type(microseconds) is float and abs(microseconds) < 1e16:
        whole = int(microseconds)
        value = whole * 1000 + round((microseconds - whole) * 1000)
    else:
        return None
    return value if 0 <= value < _MAX_NS else None


def _whole(value: object) -> int:
    if type(value) is int and 0 <= value < _MAX_NS:
        return value
    return int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 18 else -1
