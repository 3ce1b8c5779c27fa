"""What one export says as a whole: when it began, where, and of which processes."""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import field
from pathlib import Path

import numpy as np

from paceline.dataclass import dataclass
from paceline_service.importers.kineto.kernels import is_communication
from paceline_service.importers.nsys.database import Database
from paceline_service.importers.nsys.ranges import PROCESS_MASK
from paceline_service.importers.nsys.strings import Strings

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
KERNEL_NAMES = ("shortName", "demangledName", "mangledName", "nameId")
Member = tuple[int, int]
"""What may be a rank: ``globalPid`` (0 where kernels name none), and the GPU, -1 for whatever GPUs
the process uses. Only a process whose collectives run on several GPUs is several ranks."""
_RANKS = (
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
)  # fmt: skip
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
_VARIABLE = re.compile(
    r"(?:^|[\s;,{\"'\x00])(" + "|".join((*_RANKS, *_SIZES)) + r")[\"']?\s*[=:]\s*[\"']?(\d{1,7})\b"
)
"""In a text that holds a whole environment, whatever separates its variables."""
_MAX_ENVIRONMENT = 1 << 20


@dataclass(slots=True)
class Session:
    """One export.

    Attributes:
        start_utc_ns: time 0 of the file as time of day, ns since 1970; 0 where it does not tell.
        variables: numbers among the environment of what was started by ``nsys``.
        processes: those that ran kernels, ascending.
        devices: the GPUs that each of them used.
        mpi_ranks: by ``globalPid``.
    """

    path: Path
    start_utc_ns: int = 0
    host_name: str = ""
    variables: dict[str, int] = field(default_factory=dict)
    processes: list[Member] = field(default_factory=list)
    devices: dict[Member, list[int]] = field(default_factory=dict)
    mpi_ranks: dict[int, int] = field(default_factory=dict)
    whole_graphs: int = 0
    """CUDA graphs that are recorded without the kernels in them."""

    @property
    def rank(self) -> int | None:
        """The rank that the environment tells."""
        return next((self.variables[name] for name in _RANKS if name in self.variables), None)

    @property
    def world_size(self) -> int:
        """The size that the environment tells, or 0."""
        return next((self.variables[name] for name in _SIZES if name in self.variables), 0)


def read_session(database: Database, strings: Strings) -> Session:
    """Return what an export says as a whole.

    Raises:
        InputError: the file is damaged.
    """
    session = Session(path=database.path)
    for part in database.tables("TARGET_INFO_SESSION_START_TIME", ["utcEpochNs"]):
        if 0 < part[0, 0] < 1 << 61:
            session.start_utc_ns = int(part[0, 0])
        break
    for table in ("TARGET_INFO_SYSTEM_ENV", "META_DATA_CAPTURE"):
        for rows in database.rows(table, ["name", "value"]):
            for name, value in rows:
                if isinstance(name, str) and isinstance(value, str):
                    _take(session, name, value)
    used, talked = _devices(session, database, strings)
    for process, devices in sorted(used.items()):
        several = sorted(talked.get(process, ()))
        if len(several) > 1:
            session.devices.update({(process, device): [device] for device in several})
        else:
            session.devices[process, -1] = sorted(devices)
    session.processes = sorted(session.devices)
    for part in database.tables("MPI_RANKS", ["globalTid", "rank"]):
        for thread, rank in part.tolist():
            if rank >= 0:
                session.mpi_ranks[thread & PROCESS_MASK] = rank
    return session


def _devices(
    session: Session, database: Database, strings: Strings
) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
    """Return by process the GPUs that it used, and those on which it ran collectives."""
    used: dict[int, set[int]] = defaultdict(set)
    talked: dict[int, set[int]] = defaultdict(set)
    for table in (KERNELS, GRAPHS):
        name = database.first_of(table, *KERNEL_NAMES)
        for part in database.tables(table, ["globalPid", "deviceId", name]):
            for process, device, number in np.unique(part, axis=0).tolist():
                process = process if process != -1 else 0
                used[process].add(device)
                if device >= 0 and name and is_communication(strings.of(number)):
                    talked[process].add(device)
            if table == GRAPHS:
                session.whole_graphs += len(part)
    return used, talked


def _take(session: Session, name: str, value: str) -> None:
    if name in (*_RANKS, *_SIZES) and value.isdecimal() and len(value) < 8:
        session.variables.setdefault(name, int(value))
    elif name.lower() in ("hostname", "host name"):
        session.host_name = value[:256]
    else:
        for found in _VARIABLE.finditer(value[:_MAX_ENVIRONMENT]):
            session.variables.setdefault(found[1], int(found[2]))
