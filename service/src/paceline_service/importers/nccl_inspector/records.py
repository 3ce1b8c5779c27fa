"""The records of NCCL Inspector as columns: read line by line, checked, the unusable counted."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np

from paceline.counted import counted
from paceline.dataclass import dataclass
from paceline.errors import InputError
from paceline.vocabulary import Op
from paceline_service.analysis.records import Int64Array
from paceline_service.importers.faults import Faults
from paceline_service.importers.limits import MAX_RANKS
from paceline_service.importers.lines import read_objects
from paceline_service.importers.nccl_inspector.recognize import begins_prometheus
from paceline_service.importers.opening import open_binary

MAX_RECORDS = 10_000_000
"""Of one job: 1 GB as columns. A run that wrote more is to be cut, or some of its time given."""
MAX_MEMBERS = 8_000_000
"""Of all communicators together: 100,000 ranks in eighty of each."""
MAX_SN = 1 << 40
MAX_BYTES = 1 << 50
MAX_EXEC_US = 86_400e6
"""A day in one collective is no duration."""
MAX_WALL_US = 1 << 52
"""The year 2112."""
_OPS = {
    "AllReduce": Op.ALL_REDUCE,
    "AllGather": Op.ALL_GATHER,
    "AllGatherV": Op.ALL_GATHER,
    "ReduceScatter": Op.REDUCE_SCATTER,
    "AlltoAll": Op.ALL_TO_ALL,
    "AllToAll": Op.ALL_TO_ALL,
    "Broadcast": Op.BROADCAST,
    "Reduce": Op.REDUCE,
    "Gather": Op.GATHER,
    "Scatter": Op.SCATTER,
    "Send": Op.SEND,
    "Recv": Op.RECV,
}
_SOURCES = ("kernel_gpu", "kernel_cpu", "collective_cpu", "unknown")
KERNEL_GPU, KERNEL_CPU, COLLECTIVE_CPU, UNTOLD = range(len(_SOURCES))
COLUMNS = (
    "comm", "rank", "process", "op", "func", "sn", "peer", "payload_bytes", "exec_ns", "source",
    "dumped_us", "begin_us", "end_us",
)  # fmt: skip
_WIDTH = len(COLUMNS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Communicator:
    """One communicator: its hash as the plugin writes it, its name where it has one, its size."""

    id: str
    name: str
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process that wrote records; ``path`` is the first file of it."""

    host: str
    pid: int
    path: Path


@dataclass(slots=True)
class Recorded:
    """All N records: one array each of shape (N,), in the order of the files.

    ``comm`` and ``process`` are indexes; ``rank`` is the rank within the communicator; ``func``
    numbers the names of the operations as written, because ``sn`` counts per communicator and
    function; ``source`` is one of the constants above; times that are not known are 0.
    """

    table: Int64Array
    communicators: list[Communicator]
    processes: list[Process]
    functions: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.table)

    def column(self, name: str) -> Int64Array:
        """Return one column, (N,)."""
        return self.table[:, COLUMNS.index(name)]


def read_records(paths: Sequence[Path], faults: Faults) -> Recorded:
    """Read all records of ``paths``.

    Raises:
        InputError: there are none, or too many.
    """
    reader = _Reader(faults)
    for path in paths:
        reader.read(path)
    if not reader.count:
        told = f"; first: {faults.notes()[0]}" if faults.lossy else ""
        raise InputError(
            f"{paths[0]} and {counted(len(paths) - 1, 'more file')} hold no record of NCCL "
            f"Inspector{told}"
            if len(paths) > 1
            else f"{paths[0]} holds no record of NCCL Inspector{told}"
        )
    return reader.recorded()


class _Reader:
    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._values: array[int] = array("q")
        self._communicators: dict[tuple[str, int], int] = {}
        self._names: dict[int, str] = {}
        self._counted: set[int] = set()
        self._members = 0
        self._processes: dict[tuple[str, int], int] = {}
        self._known: list[Process] = []
        self._functions: dict[str, int] = {}

    @property
    def count(self) -> int:
        return len(self._values) // _WIDTH

    def read(self, path: Path) -> None:
        if _is_prometheus(path):
            message = (
                "averages for Prometheus (NCCL_INSPECTOR_PROM_DUMP=1), which hold no single "
                "collective: record without that setting"
            )
            self._faults.add("unusable_file", path, None, message)
            return
        for number, value in read_objects(path, self._faults):
            try:
                self._values.extend(self._row(value, path))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                what = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
                self._faults.add("invalid", path, number, f"no usable record: {what}")
            if self.count > MAX_RECORDS:
                raise InputError(
                    f"over {MAX_RECORDS:,} records ({path} and before); give the files of less "
                    "time, for example the last hour of each"
                )

    def recorded(self) -> Recorded:
        table = self._once(np.frombuffer(self._values, dtype=np.int64).reshape(-1, _WIDTH))
        communicators = [
            Communicator(id=id_, name=self._names.get(index, ""), size=size)
            for (id_, size), index in self._communicators.items()
        ]
        return Recorded(
            table=table,
            communicators=communicators,
            processes=self._known,
            functions=list(self._functions),
        )

    def _once(self, table: Int64Array) -> Int64Array:
        """Return the rows, in order, without those of a file that was given twice."""
        keys = table[:, [COLUMNS.index(name) for name in ("comm", "rank", "process", "func", "sn")]]
        order = np.lexsort((np.arange(len(table)), *keys.T))
        again = np.zeros(len(table), dtype=np.bool_)
        again[order[1:]] = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
        for process in np.unique(table[again, COLUMNS.index("process")]).tolist():
            count = int((again & (table[:, COLUMNS.index("process")] == process)).sum())
            message = "a record that is there twice; it counts once"
            self._faults.add("duplicate", self._known[process].path, None, message, count=count)
        return table[~again] if again.any() else table

    def _row(self, value: object, path: Path) -> tuple[int, ...]:
        record = _mapping(value, "a record")
        header = _mapping(record["header"], "header")
        about = _mapping(record.get("metadata") or {}, "metadata")
        kind = "coll" if "coll_perf" in record else "p2p"
        perf = _mapping(record[f"{kind}_perf"], f"{kind}_perf")
        size = _whole(header["n_ranks"], "n_ranks", MAX_RANKS)
        rank = _whole(header["rank"], "rank", size - 1)
        name = _text(perf[kind], kind)
        op = _OPS.get(name, Op.UNKNOWN)
        peer = -1
        if kind == "p2p":
            peer = _whole(perf["p2p_peer"], "p2p_peer", size - 1)
            if op not in (Op.SEND, Op.RECV):
                raise ValueError(f"p2p is {name[:40]!r}, neither Send nor Recv")
        elif op in (Op.SEND, Op.RECV):
            raise ValueError(f"coll is {name[:40]!r}")
        exec_us = perf[f"{kind}_exec_time_us"]
        if type(exec_us) not in (int, float) or not 0 <= exec_us <= MAX_EXEC_US:
            raise ValueError(f"exec_time_us is {str(exec_us)[:40]}")
        told = perf.get(f"{kind}_timing_source", "unknown")
        begin_us, end_us = _trace(perf.get("event_trace_ts"))
        return (
            self._communicator(_text(header["id"], "id"), size, header.get("comm_name")),
            rank,
            self._process(about, path),
            int(op),
            self._functions.setdefault(name, len(self._functions)),
            _whole(perf[f"{kind}_sn"], "sn", MAX_SN),
            peer,
            _whole(perf.get(f"{kind}_msg_size_bytes", 0), "msg_size_bytes", MAX_BYTES),
            round(exec_us * 1000),
            _SOURCES.index(told) if told in _SOURCES else UNTOLD,
            _whole(about.get("dump_timestamp_us", 0), "dump_timestamp_us", MAX_WALL_US),
            begin_us,
            end_us,
        )

    def _communicator(self, id_: str, size: int, name: object) -> int:
        index = self._communicators.setdefault((id_, size), len(self._communicators))
        if index not in self._counted:
            self._counted.add(index)
            self._members += size
            if self._members > MAX_MEMBERS:
                raise InputError(
                    f"the communicators have over {MAX_MEMBERS:,} members together; give the files "
                    "of one job"
                )
        if isinstance(name, str) and name not in ("", "unknown") and index not in self._names:
            self._names[index] = name[:80]
        return index

    def _process(self, about: Mapping[str, Any], path: Path) -> int:
        host = about.get("hostname")
        pid = about.get("pid")
        if not isinstance(host, str) or type(pid) is not int or not 0 <= pid < 1 << 40:
            host, pid = str(path), 0  # what does not say who wrote it is of its file
        index = self._processes.get((host, pid))
        if index is None:
            index = self._processes[host, pid] = len(self._known)
            self._known.append(Process(host=host[:255], pid=pid, path=path))
        return index


def _trace(value: object) -> tuple[int, int]:
    """Return when the host saw the first channel begin and the last one end, us; 0 if untold."""
    if not isinstance(value, dict):
        return 0, 0
    begins, ends = [], []
    channels = value.get("kernel_events")
    for channel in channels if isinstance(channels, list) else ():
        begin, end = channel["kernel_start_ts"], channel["kernel_stop_ts"]
        if begin and end:
            begins.append(_whole(begin, "kernel_start_ts", MAX_WALL_US))
            ends.append(_whole(end, "kernel_stop_ts", MAX_WALL_US))
    if not begins or max(ends) < min(begins):
        return 0, 0
    return min(begins), max(ends)


def _mapping(value: object, name: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{name} is no object")
    return value


def _text(value: object, name: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise TypeError(f"{name} is no text of up to 255 characters")
    return value


def _whole(value: object, name: str, most: int) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{name} is {str(value)[:40]}, not 0 to {most}")
    return value


def _is_prometheus(path: Path) -> bool:
    try:
        with open_binary(path) as file:
            return begins_prometheus(file.read(1 << 16))
    except (EOFError, OSError, zlib.error):
        return False  # it is told when its lines are read
