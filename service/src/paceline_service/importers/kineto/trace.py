"""What one trace file says, as columns."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.analysis.records import BoolArray, Int64Array
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.args import Args

COMPUTE, COMMUNICATION, MEMORY = range(3)
MAX_NS = 1 << 61
_EPOCH_NS = 1_000_000_000_000_000_000
"""Times before September 2001 are no time of day; they count from when the machine started."""


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
        compute_streams: those on which other kernels ran.
        suspects: kernels that look like communication but are of no known name.
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
    compute_streams: set[int] = field(default_factory=set)
    suspects: Counter[str] = field(default_factory=Counter)
    calls: Columns = field(default_factory=lambda: Columns(3))
    call_names: list[str] = field(default_factory=list)
    call_args: list[Args | None] = field(default_factory=list)
    host: Columns = field(default_factory=lambda: Columns(2))
    backward: Columns = field(default_factory=lambda: Columns(2))
    steps: Columns = field(default_factory=lambda: Columns(3))
    phases: Columns = field(default_factory=lambda: Columns(3))
    events: int = 0
    first_ns: int = MAX_NS
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


def take_metadata(trace: Trace, metadata: dict[str, Any]) -> None:
    """Take what a trace says beside its events."""
    trace.identity = str(metadata.get("trace_id") or "")
    trace.host_name = str(metadata.get("host_name") or "")
    base_ns = metadata.get("baseTimeNanoseconds")
    if type(base_ns) is int and 0 < base_ns < MAX_NS and trace.last_ns < _EPOCH_NS:
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
        return _ranks_in(value)
    if isinstance(value, list) and all(type(rank) is int and rank >= 0 for rank in value):
        return tuple(value)
    return ()


@lru_cache(maxsize=1024)
def _ranks_in(text: str) -> tuple[int, ...]:
    """Return the ranks that a text lists; every collective of a group repeats it."""
    parts = [part.strip() for part in text.strip("[] ").split(",")]
    if not all(part.isdecimal() and len(part) < 10 for part in parts):
        return ()
    return tuple(int(part) for part in parts)
