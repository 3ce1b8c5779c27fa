"""Building the plugin and the program that plays NCCL, running it, reading what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from paceline.plugin import command as compile_command
from paceline.ring import RingReader
from paceline.ring.layout import InFlight, Record, RingIdentity
from paceline.vocabulary import Flag, Op
from paceline_service.bench.plugin import build_host, find_compiler

VARIANTS = {
    "plain": ("-O2",),
    "asan": ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    "tsan": ("-O1", "-fsanitize=thread"),
    "valgrind": ("-O1",),
}
SANITIZER_ENVIRONMENT = {
    # The library stays mapped and keeps what it has: that is its design, not a leak.
    "ASAN_OPTIONS": "abort_on_error=0:exitcode=66:detect_leaks=1",
    "LSAN_OPTIONS": "report_objects=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "exitcode=66:halt_on_error=1:second_deadlock_stack=1",
}
SANITIZER_COMPLAINT = 66
ABIS = (4, 5, 6, 7)
OPS = {
    "AllReduce": Op.ALL_REDUCE,
    "AllGather": Op.ALL_GATHER,
    "ReduceScatter": Op.REDUCE_SCATTER,
    "Broadcast": Op.BROADCAST,
    "Reduce": Op.REDUCE,
    "Send": Op.SEND,
    "Recv": Op.RECV,
}
PER_RANK = {"AllGather", "ReduceScatter"}
"""Their count is one rank's part of the buffer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    host: Path
    plugin: Path
    variant: str

    def command(self, mode: str, options: dict[str, object]) -> list[str]:
        words = [str(self.host), mode, "--plugin", str(self.plugin)]
        for name, value in options.items():
            words += ["--" + name.replace("_", "-"), str(value)]
        if self.variant == "valgrind":
            words = ["valgrind", "-q", "--error-exitcode=66", "--leak-check=full", *words]
        return words


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring:
    identity: RingIdentity
    records: list[Record]
    meta: list[dict[str, Any]]
    inflight: list[InFlight]
    overwritten: int
    torn: int
    closed: bool
    alive: bool

    def by_hash(self) -> dict[str, list[Record]]:
        """Return the records of each communicator, in the ring's order."""
        names = {entry["comm"]: entry["hash"] for entry in self.meta if "comm" in entry}
        found = defaultdict(list)
        for record in self.records:
            if record.group in names:
                found[names[record.group]].append(record)
        return dict(found)


@dataclass(slots=True, kw_only=True)
class Truth:
    """What the host says it did."""

    returncode: int
    stderr: str
    lines: list[dict[str, Any]] = field(default_factory=list)

    def ops(self, *kinds: str) -> list[dict[str, Any]]:
        return [one for one in self.lines if one["type"] == "op" and one["kind"] in kinds]

    def comms(self) -> dict[str, dict[str, Any]]:
        return {one["hash"]: one for one in self.lines if one["type"] == "comm"}


def needs_compiler() -> str:
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler: apt-get install gcc libc6-dev")
    return compiler


@cache
def built(variant: str = "plain") -> Built:
    """Compile plugin and host, once in a process for each variant."""
    compiler = needs_compiler()
    directory = Path(mkdtemp(prefix="paceline-plugin-"))
    flags = VARIANTS[variant]
    plugin = directory / "libnccl-profiler-paceline.so"
    subprocess.run(
        compile_command(compiler, plugin, ["-g", "-Werror", *flags]),
        check=True,
        capture_output=True,
    )
    host = build_host(directory / "ncclhost", compiler, flags)
    return Built(host=host, plugin=plugin, variant=variant)


def environment(runtime: Path, **more: str) -> dict[str, str]:
    """Return the environment of rank 1 of a job of 8, without anything of the caller's."""
    kept = {key: os.environ[key] for key in ("PATH", "HOME", "LANG") if key in os.environ}
    return {
        **kept,
        **SANITIZER_ENVIRONMENT,
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "8",
        "PACELINE_JOB": "played",
        "PACELINE_RUN_ID": "run-1",
        "PACELINE_RUNTIME_DIR": str(runtime),
        **more,
    }


def play(
    runtime: Path,
    mode: str = "play",
    *,
    variant: str = "plain",
    env: dict[str, str] | None = None,
    timeout: float = 100,
    **options: object,
) -> Truth:
    """Run the host to its end; its own complaints and the sanitizers' fail the test."""
    done = subprocess.run(
        built(variant).command(mode, options),
        env=environment(runtime, **(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-6000:]}"
    return Truth(returncode=done.returncode, stderr=done.stderr, lines=parse(done.stdout))


def parse(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


def ring_paths(runtime: Path) -> list[Path]:
    return sorted(runtime.glob("*.ring"))


def read_ring(path: Path) -> Ring:
    """Read everything that is in a ring."""
    reader = RingReader(path)
    try:
        records: list[Record] = []
        overwritten = torn = 0
        while (batch := reader.poll()).rows or batch.torn:
            records += batch.records
            overwritten += batch.overwritten
            torn += batch.torn
        meta, corrupt = reader.meta()
        assert corrupt == 0
        return Ring(
            identity=reader.identity,
            records=records,
            meta=meta,
            inflight=reader.inflight(),
            overwritten=overwritten,
            torn=torn,
            closed=reader.closed_by_writer,
            alive=reader.writer_alive(),
        )
    finally:
        reader.close()


def only_ring(runtime: Path) -> Ring:
    """Return the one ring that there must be."""
    paths = ring_paths(runtime)
    assert len(paths) == 1, paths
    return read_ring(paths[0])


def key(op: dict[str, Any]) -> tuple[Any, ...]:
    """Return what makes an operation the same in the truth and in the ring."""
    if op["kind"] == "p2p":
        return (op["hash"], OPS[op["func"]], op["peer"], op["seq"])
    return (op["hash"], OPS[op["func"]], -1, op["seq"])


def keyed(ring: Ring) -> dict[tuple[Any, ...], Record]:
    """Return the records by ``key``; two records of one operation fail the test."""
    found = keyed_where_described(ring)
    assert len(found) == len(ring.records), "records of communicators that nothing describes"
    return found


def keyed_where_described(ring: Ring) -> dict[tuple[Any, ...], Record]:
    """Return the records of the communicators that the metadata had room for."""
    found: dict[tuple[Any, ...], Record] = {}
    for name, records in ring.by_hash().items():
        for record in records:
            op = Op(record.code)
            peer = record.peer if op in (Op.SEND, Op.RECV) else -1
            one = (name, op, peer, record.seq)
            assert one not in found, one
            found[one] = record
    return found


def is_timed(record: Record) -> bool:
    return bool(record.flags & Flag.GPU_TIME) and record.end_ns > 0
