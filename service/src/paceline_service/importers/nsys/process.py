"""One process of an export as a trace: the same columns that a profiler trace is read into."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from paceline_service.analysis.records import Int64Array
from paceline_service.importers.kineto import names
from paceline_service.importers.kineto.args import Args
from paceline_service.importers.kineto.trace import COMMUNICATION, COMPUTE, MEMORY, Trace
from paceline_service.importers.nsys.calls import Find, kernel_calls
from paceline_service.importers.nsys.database import Database
from paceline_service.importers.nsys.ranges import Ranges
from paceline_service.importers.nsys.session import (
    GRAPHS,
    KERNEL_NAMES,
    KERNELS,
    RUNTIME,
    Member,
    Session,
)
from paceline_service.importers.nsys.strings import Strings

_THREADS = 0xFFFFFF
_MAX_NS = 1 << 60
_LAUNCHES = ("launch", "memcpy", "memset")


def read_process(
    database: Database,
    strings: Strings,
    session: Session,
    process: Member,
    ranges: Ranges,
    find: Find,
) -> tuple[Trace, int]:
    """Return the trace of one process, and how many rows of it have no usable time.

    Raises:
        InputError: the file is damaged.
    """
    trace = Trace(path=database.path, host_name=session.host_name)
    reader = _Reader(trace, database, session.start_utc_ns + 1, process)
    reader.kernels(strings)
    reader.plain(GRAPHS, COMPUTE)
    for table in ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"):
        reader.plain(table, MEMORY)
    reader.launches(strings)
    reader.ranges(ranges, find)
    return trace, reader.odd_times


class _Reader:
    def __init__(self, trace: Trace, database: Database, base_ns: int, process: Member) -> None:
        self.odd_times = 0
        self._trace = trace
        self._database = database
        self._base_ns = base_ns
        """Added to all times, so that none is 0, which means unknown inside."""
        self._process, self._device = process

    def kernels(self, strings: Strings) -> None:
        """Read the kernels, those of communication apart."""
        trace, database = self._trace, self._database
        name = database.first_of(KERNELS, *KERNEL_NAMES)
        texts = {number: strings.of(number) for number in database.distinct(KERNELS, name)}
        talking = np.array(
            [number for number, text in texts.items() if names.is_communication(text)],
            dtype=np.int64,
        )
        columns = ["start", "end", "correlationId", "streamId", name, "gridX"]
        for part in self._parts(KERNELS, columns):
            mine = np.isin(part[:, 4], talking)
            self._activities(part, np.where(mine, COMMUNICATION, COMPUTE))
            trace.kernels.extend(part[mine][:, [0, 1, 2, 3]])
            for number, blocks in part[mine][:, 4:6].tolist():
                trace.kernel_names.append(texts[number])
                trace.kernel_args.append(Args(grid=[blocks]) if blocks > 0 else None)

    def plain(self, table: str, kind: int) -> None:
        """Read activities that are all of one kind."""
        for part in self._parts(table, ["start", "end", "correlationId"]):
            self._activities(part, np.full(len(part), kind, dtype=np.int64))

    def launches(self, strings: Strings) -> None:
        """Read the calls that launch something."""
        named = [
            number
            for number in self._database.distinct(RUNTIME, "nameId")
            if any(word in strings.of(number).lower() for word in _LAUNCHES)
        ]
        has_names = self._database.has(RUNTIME, "nameId")
        columns = ["correlationId", "start", "end", "globalTid", "nameId"]
        for part in self._parts(RUNTIME, columns):
            kept = part[:, 0] >= 0
            if has_names:
                kept &= np.isin(part[:, 4], named)
            self._trace.launches.extend(part[kept][:, :4])

    def ranges(self, ranges: Ranges, find: Find) -> None:
        """Take over the process's ranges."""
        trace, base = self._trace, self._base_ns
        for source, target, first in (
            (ranges.steps, trace.steps, 1), (ranges.phases, trace.phases, 1),
            (ranges.backward, trace.backward, 0),
        ):  # fmt: skip
            if len(source):
                table = np.stack(source.arrays(), axis=1)
                table[:, first:] += base
                target.extend(table)
                trace.events += len(table)
        found = kernel_calls(ranges, find)
        for begin, done, of, args in found:
            trace.calls.add(begin + base, done + base, of)
            trace.call_names.append("record_param_comms")
            trace.call_args.append(args)
        if ranges.call_names:
            start, end, thread = ranges.calls.arrays()
            trace.calls.extend(np.stack([start + base, end + base, thread], axis=1))
            trace.call_names += ranges.call_names
            trace.call_args += [None] * len(ranges.call_names)

    def _activities(self, part: Int64Array, kind: Int64Array) -> None:
        trace = self._trace
        trace.activities.extend(np.stack([part[:, 0], part[:, 1], kind, part[:, 2]], axis=1))
        trace.events += len(part)
        if len(part):
            trace.first_ns = min(trace.first_ns, int(part[:, 0].min()))
            trace.last_ns = max(trace.last_ns, int(part[:, 1].max()))

    def _parts(self, table: str, columns: list[str]) -> Iterator[Int64Array]:
        """Yield rows of the process with a time, the times moved."""
        at = columns.index("start")
        conditions: list[str] = []
        values: list[int] = []
        if self._process and self._database.has(table, "globalPid"):
            conditions.append('"globalPid" = ?')
            values.append(self._process)
        elif self._process and self._database.has(table, "globalTid"):
            conditions.append('"globalTid" BETWEEN ? AND ?')
            values += [self._process, self._process + _THREADS]
        if self._device >= 0 and self._database.has(table, "deviceId"):
            conditions.append('"deviceId" = ?')
            values.append(self._device)
        where = " AND ".join(conditions)
        for part in self._database.tables(table, columns, where, values):
            start, end = part[:, at], part[:, at + 1]
            good = (start >= 0) & (end >= start) & (end < _MAX_NS)
            self.odd_times += int((~good).sum())
            kept = part[good]
            kept[:, at : at + 2] += self._base_ns
            yield kept
