"""Starts small real jobs on Gloo, each rank a process, and reads the rings that they leave."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.ring import InFlight, Record, RingIdentity, RingReader
from paceline.ring.layout import HOOK_ERRORS_OFFSET
from paceline.ring.replicas import ReplicaDigest
from paceline.vocabulary import Op, Phase, RecordKind

JOBS = Path(__file__).parent / "jobs"
TIMEOUT_S = 90


@dataclass(frozen=True, kw_only=True)
class Ring:
    """What one rank left."""

    identity: RingIdentity
    records: list[Record]
    groups: dict[int, dict[str, Any]]
    info: dict[str, Any]
    inflight: list[InFlight]
    errors: int
    closed: bool
    digests: list[ReplicaDigest] = field(default_factory=list)
    """The newest of its replica digests."""

    def collectives(self, name: str | None = None) -> list[Record]:
        return [
            record
            for record in self.records
            if record.kind == RecordKind.COLLECTIVE
            and (name is None or self.groups[record.group]["name"] == name)
        ]

    def phases(self, phase: Phase, step: int) -> list[Record]:
        return [
            record
            for record in self.records
            if (record.kind, record.code, record.step) == (RecordKind.PHASE, phase, step)
        ]

    def steps(self) -> list[Record]:
        return [record for record in self.records if record.kind == RecordKind.STEP]

    def phase_ns(self, phase: Phase, step: int) -> int:
        return sum(record.end_ns - record.start_ns for record in self.phases(phase, step))

    def ops(self, name: str | None = None) -> list[Op]:
        return [Op(record.code) for record in self.collectives(name)]


@dataclass(kw_only=True)
class Finished:
    """The outcome of one job."""

    returncodes: list[int]
    output: list[str]
    rings: dict[int, Ring] = field(default_factory=dict)
    said: dict[int, Any] = field(default_factory=dict)
    """What each rank wrote to the file that OUT names, as JSON."""


def rank_environment(
    rank: int, world_size: int, port: int, directory: Path, extra: Mapping[str, str] | None
) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE")}
    return {
        **clean,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "PACELINE_INJECT": "1",
        "PACELINE_NATIVE": "off",  # whatever is built on this machine
        "PACELINE_JOB": "kit",
        "PACELINE_RUN_ID": "kit-run",
        "PACELINE_RUNTIME_DIR": str(directory / "rings"),
        "OUT": str(directory / f"said.{rank}.json"),
        **(extra or {}),
    }


def run_ranks(
    script: str,
    directory: Path,
    world_size: int = 2,
    *,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Finished:
    """Run ``jobs/<script>`` on every rank to its end."""
    port = free_port()
    processes = [
        subprocess.Popen(
            [sys.executable, str(JOBS / script), *arguments],
            env=rank_environment(rank, world_size, port, directory, env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(world_size)
    ]
    output = []
    try:
        for process in processes:
            output.append(process.communicate(timeout=TIMEOUT_S)[0])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    finished = Finished(returncodes=[process.returncode for process in processes], output=output)
    finished.rings = read_rings(directory / "rings")
    for rank in range(world_size):
        path = directory / f"said.{rank}.json"
        if path.exists():
            finished.said[rank] = json.loads(path.read_text())
    return finished


def read_rings(directory: Path) -> dict[int, Ring]:
    """Return the rings in ``directory`` by rank."""
    rings = {}
    for path in directory.glob("*.ring"):
        reader = RingReader(path)
        batch = reader.poll(limit=1_000_000)
        assert batch.torn == 0
        assert batch.overwritten == 0
        entries, corrupt = reader.meta()
        assert corrupt == 0
        rings[reader.identity.rank] = Ring(
            identity=reader.identity,
            records=batch.records,
            groups={entry["group"]: entry for entry in entries if "group" in entry},
            info={k: v for entry in entries for k, v in entry.get("info", {}).items()},
            inflight=reader.inflight(),
            errors=reader.word(HOOK_ERRORS_OFFSET),
            closed=reader.closed_by_writer,
            digests=reader.digests(0)[0],
        )
        reader.close()
    return rings


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
