"""Made-up jobs as SQLite exports of Nsight Systems, in the schemas of three generations."""

from __future__ import annotations

import json
import sqlite3
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.unit.importers.traces import EPOCH_US, Json

UTC_NS = EPOCH_US * 1000 - 5_000_000_000
MACHINE = 0x0101 << 48
WORLD = 0xFEDCBA9876543210
PARENT = "Parent NCCL communicator ID"
COMM_INIT, COMM_SPLIT, COLLECTIVE = 16777217, 16777218, 16777220
_API = {"allreduce": "ncclAllReduce", "_allgather_base": "ncclAllGather", "send": "ncclSend",
        "recv": "ncclRecv"}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How an export is laid out: texts inline or by number, what NCCL tells and in which form."""

    name: str
    text_inline: bool = False
    payload: str = "none"
    session_start: bool = True
    kernel_process: bool = True
    names: tuple[str, ...] = ("demangledName", "shortName")
    event_class: bool = True


G2021 = Generation(name="2021", text_inline=True, session_start=False)
G2023 = Generation(name="2023", payload="json", names=("demangledName", "shortName", "mangledName"))
G2026 = Generation(
    name="2026", payload="binary", names=("demangledName", "shortName", "mangledName"),
)  # fmt: skip
GENERATIONS = (G2021, G2023, G2026)


def write_export(
    path: Path,
    documents: Sequence[Json],
    ranks: Sequence[int],
    generation: Generation = G2026,
    *,
    env: str = "",
    host: str = "node-a",
    steps: str = "step_{}",
    init: bool = True,
    processes: bool = True,
    together: bool = False,
) -> Path:
    """Write the documents of ``ranks`` as one export, a process each, or all in one process."""
    writer = _Writer(path, generation, env, host, steps, init, processes)
    writer.together = together
    return writer.write(documents, ranks)


class _Writer:
    together = False

    def __init__(
        self, path: Path, generation: Generation, env: str, host: str, steps: str, init: bool,
        processes: bool,
    ) -> None:  # fmt: skip
        path.unlink(missing_ok=True)
        self._path, self._g, self._steps, self._init = path, generation, steps, init
        self._processes = processes
        self._db = sqlite3.connect(path)
        self._texts: dict[str, int] = {}
        self._tables(env, host)

    def write(self, documents: Sequence[Json], ranks: Sequence[int]) -> Path:
        for local, rank in enumerate(ranks):
            self._process(documents[rank], rank, local, len(documents))
        self._db.executemany("INSERT INTO StringIds VALUES (?, ?)",
                             [(i, text) for text, i in self._texts.items()])  # fmt: skip
        self._db.commit()
        self._db.close()
        return self._path

    def _tables(self, env: str, host: str) -> None:
        g, db = self._g, self._db
        db.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        db.execute("CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, "
                   "name TEXT NOT NULL, nameEnum INTEGER, value TEXT NOT NULL)")  # fmt: skip
        rows = [(0, "", "Hostname", 1, host), (0, "", "CpuCores", 2, "128")]
        rows += [(0, "", "DeviceEnvironment", 3, env)] if env else []
        db.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?, ?, ?, ?)", rows)
        if g.session_start:
            db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, "
                       "utcTime TEXT, localTime TEXT)")  # fmt: skip
            db.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", [UTC_NS])
        pid = "globalPid INTEGER, " if self._processes else ""
        names = ", ".join(f"{name} INTEGER" for name in g.names)
        db.execute(
            f'CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" '
            f"INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER, streamId "
            f"INTEGER NOT NULL, correlationId INTEGER, {pid}{names}, gridX INTEGER)"
        )
        db.execute('CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" '
                   "INTEGER NOT NULL, eventClass INTEGER, globalTid INTEGER, correlationId "
                   "INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER)")  # fmt: skip
        more = "" if g.text_inline else ", textId INTEGER, jsonTextId INTEGER, jsonText TEXT"
        more += ", binaryData BLOB" if g.payload == "binary" else ""
        db.execute(
            'CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType '
            f"INTEGER NOT NULL, text TEXT, globalTid INTEGER, domainId INTEGER{more})"
        )
        if g.payload == "binary":
            db.execute("CREATE TABLE NVTX_PAYLOAD_SCHEMA_ENTRIES (domainId INTEGER, schemaId "
                       "INTEGER, idx INTEGER, flags INTEGER, type INTEGER, name TEXT, description "
                       "TEXT, arrayOrUnionDetail INTEGER, offset INTEGER)")  # fmt: skip
            entries = [
                (COMM_INIT, 0, 18, "NCCL communicator ID", None),
                (COMM_INIT, 1, 5, "No. of ranks", 8), (COMM_INIT, 2, 5, "Rank", 12),
                (COMM_INIT, 3, 5, "CUDA device", 16),
                (COMM_SPLIT, 0, 18, "NCCL communicator ID", None), (COMM_SPLIT, 1, 18, PARENT, 8),
                (COMM_SPLIT, 2, 5, "No. of ranks", 16), (COMM_SPLIT, 3, 5, "Rank", 20),
                (COMM_SPLIT, 4, 5, "CUDA device", 24), (COMM_SPLIT, 5, 5, "Color", 28),
                (COMM_SPLIT, 6, 5, "Key", 32),
                (COLLECTIVE, 0, 18, "NCCL communicator ID", None),
                (COLLECTIVE, 1, 22, "Message size [bytes]", 8),
            ]  # fmt: skip
            db.executemany(
                "INSERT INTO NVTX_PAYLOAD_SCHEMA_ENTRIES VALUES (1, ?, ?, NULL, ?, ?, '', 0, ?)",
                entries,
            )
        db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)")

    def _process(self, document: Json, rank: int, local: int, world_size: int) -> None:
        pid = MACHINE | (4000 + (0 if self.together else local)) << 24
        first = 1_000_000 * local if self.together else 0
        tid = pid | (4000 + local)
        info, self._world_size = document["distributedInfo"], world_size
        assert info["rank"] == rank
        if self._init and self._g.payload != "none":
            self._nvtx("ncclCommInitRankConfig", 1000, 2000, tid,
                       {"NCCL communicator ID": WORLD, "No. of ranks": world_size,
                        "Rank": rank, "CUDA device": local})  # fmt: skip
        launches: dict[int, tuple[int, int]] = {}
        groups: set[str] = set()
        for event in document["traceEvents"]:
            start = event["ts"] * 1000 - UTC_NS
            end, args = start + event["dur"] * 1000, event["args"]
            if event["cat"] == "cuda_runtime":
                launches[args["correlation"]] = (start, end)
                self._insert("CUPTI_ACTIVITY_KIND_RUNTIME",
                             (start, end, 0, tid, first + args["correlation"],
                              self._id("cudaLaunchKernelExC_v11060"), 0))  # fmt: skip
            elif event["cat"] == "kernel":
                self._kernel(event, start, end, pid, local, first)
                if "Process Group Name" in args:
                    begin, done = launches[args["correlation"]]
                    groups.add(args["Process Group Ranks"])
                    self._collective(args, begin - 2000, done + 2000, tid, rank)
            elif event["cat"] == "user_annotation":
                number = event["name"].partition("#")[2]
                self._nvtx(self._steps.format(number), start, end, tid)
        for ranks in groups:
            members = json.loads(ranks)
            if self._init and self._g.payload != "none" and len(members) != world_size:
                # As NCCL writes it: the number of ranks and the own one are those of the parent.
                self._nvtx("ncclCommSplit", 3000, 4000, tid,
                           {"NCCL communicator ID": comm_of(ranks), PARENT: WORLD,
                            "No. of ranks": world_size, "Rank": rank, "CUDA device": local,
                            "Color": members[0], "Key": members.index(rank)})  # fmt: skip

    def _kernel(self, event: Json, start: int, end: int, pid: int, device: int, first: int) -> None:
        args = event["args"]
        full = self._id(event["name"])
        short = self._id(event["name"].partition("(")[0])
        names = [short if name == "shortName" else full for name in self._g.names]
        owner = [pid] if self._processes else []
        self._insert("CUPTI_ACTIVITY_KIND_KERNEL",
                     (start, end, device, 1, args["stream"], first + args["correlation"],
                      *owner, *names, args["grid"][0]))  # fmt: skip

    def _collective(self, args: Json, start: int, end: int, tid: int, rank: int) -> None:
        ranks = args["Process Group Ranks"]
        number = WORLD if len(json.loads(ranks)) == self._world_size else comm_of(ranks)
        told = {"NCCL communicator ID": number, "Message size [bytes]": 4 * args["In msg nelems"]}
        if "Peer rank" in args:
            # torch puts every send and receive into a group, whose end launches it.
            told["Peer rank"] = args["Peer rank"]
            self._nvtx("ncclGroupStart", start - 900, start - 800, tid)
            self._nvtx(_API[args["Collective name"]], start - 700, start - 300, tid, told)
            self._nvtx("ncclGroupEnd", start - 200, end, tid)
        else:
            self._nvtx(_API[args["Collective name"]], start, end, tid, told)

    def _nvtx(
        self, text: str, start: int, end: int, tid: int, told: dict[str, int] | None = None
    ) -> None:
        g = self._g
        row: dict[str, Any] = {"start": start, "end": end, "eventType": 59, "globalTid": tid,
                               "domainId": 1 if told else 0}  # fmt: skip
        row["text" if g.text_inline else "textId"] = text if g.text_inline else self._id(text)
        if told and g.payload == "json":
            row["jsonText"] = json.dumps({k: f"{v:,}" for k, v in told.items()})
        if told and g.payload == "binary":
            schema, form = COLLECTIVE, "<QQ"
            if "Rank" in told:
                split = PARENT in told
                schema, form = (COMM_SPLIT, "<QQiiiii4x") if split else (COMM_INIT, "<Qiii4x")
            body = struct.pack(form, *told.values())
            row["binaryData"] = struct.pack("<QQQQ", 1, schema, len(body), 32) + body
        columns = ", ".join(f'"{column}"' for column in row)
        marks = ", ".join("?" * len(row))
        self._db.execute(f"INSERT INTO NVTX_EVENTS ({columns}) VALUES ({marks})",
                         list(row.values()))  # fmt: skip

    def _insert(self, table: str, row: tuple[Any, ...]) -> None:
        self._db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    def _id(self, text: str) -> int:
        return self._texts.setdefault(text, len(self._texts))


def comm_of(ranks: str) -> int:
    """Return a hash as NCCL gives: the same on all members, often over the signed range."""
    return (0x9E3779B97F4A7C15 * (1 + sum(3**r for r in json.loads(ranks)))) & (1 << 64) - 1
