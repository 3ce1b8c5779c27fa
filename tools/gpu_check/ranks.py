"""NCCL ranks as processes that share one GPU, and the rings that they leave."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.errors import RingError
from paceline.ring import RingReader
from paceline.ring.layout import InFlight, Record

ONE_GPU = {
    "NCCL_NET": "Socket", "NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0", "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_MAX_NCHANNELS": "2",
    "NCCL_ALGO": "Ring", "NCCL_PROTO": "Simple", "NCCL_MULTI_RANK_GPU_ENABLE": "1",
}  # fmt: skip
"""NCCL refuses two ranks on a GPU of one host: each gets a NCCL_HOSTID of its own beside this."""
JOB = "tools.gpu_check.job"
ON_GPU = os.environ.get("GPU_CHECK_DEVICE", "cuda") == "cuda"
"""``cpu``: ranks on Gloo, to test the check itself where there is no GPU."""
PRODUCER = "nccl" if ON_GPU else "hooks"
ROOT = Path(__file__).resolve().parents[2]


class RanksError(Exception):
    """A rank failed; the message has the end of what it said."""


@dataclass(slots=True, kw_only=True)
class Ring:
    """What one ring holds."""

    producer: str
    rank: int
    records: list[Record]
    info: dict[str, str]
    comms: list[dict[str, Any]]
    inflight: list[InFlight]
    lost: int


@dataclass(slots=True, kw_only=True)
class Finished:
    """What a job left: each rank's answer, and the rings by (producer, rank)."""

    answers: dict[int, Any]
    rings: dict[tuple[str, int], Ring]
    nccl_log: str

    def by_payload(self, producer: str, rank: int) -> dict[int, Record]:
        """Return the collectives of a ring by payload, which the job makes unique."""
        ring = self.rings.get((producer, rank))
        return {one.payload_bytes: one for one in ring.records if one.kind == 1} if ring else {}


@dataclass(slots=True, kw_only=True)
class Job:
    """Ranks at work."""

    directory: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def rings(self) -> dict[tuple[str, int], Ring]:
        """Read the rings as they are now."""
        found = {}
        for path in sorted((self.directory / "rings").glob("*.ring")):
            try:
                ring = read_ring(path)
            except RingError:
                continue
            found[ring.producer, ring.rank] = ring
        return found

    def wait(self, limit_s: float) -> Finished:
        """Wait for all ranks.

        Raises:
            RanksError: one failed, or they were not done in time.
        """
        until = time.monotonic() + limit_s
        while any(process.poll() is None for process in self.processes):
            if any(process.poll() not in (None, 0) for process in self.processes):
                time.sleep(1.0)  # the others may say why
                break
            if time.monotonic() > until:
                raise RanksError(f"not done after {limit_s:.0f} s: {self._said()}")
            time.sleep(0.05)
        codes = [process.poll() for process in self.processes]
        if any(codes):
            raise RanksError(f"ranks ended with {codes}: {self._said()}")
        answers = {
            rank: json.loads((self.directory / f"rank{rank}.json").read_text())
            for rank in range(len(self.processes))
        }
        log = "".join(
            path.read_text(errors="replace") for path in sorted(self.directory.glob("nccl.*"))
        )
        return Finished(answers=answers, rings=self.rings(), nccl_log=log)

    def _said(self) -> str:
        logs = sorted(self.directory.glob("rank*.log"))
        return "\n".join(path.read_text(errors="replace")[-1200:] for path in logs)


@contextmanager
def started(
    mode: str,
    world: int,
    *,
    plugin: Path | None,
    arguments: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
) -> Iterator[Job]:
    """Start ``world`` ranks of ``job.py`` on GPU 0; they are killed at the end.

    Args:
        mode: a function of ``job.py``.
        world: the number of ranks.
        plugin: the NCCL plugin, or None.
        arguments: for the function.
        env: variables beside the usual.
    """
    directory = Path(tempfile.mkdtemp(prefix="ranks-"))
    job = Job(directory=directory)
    port = free_port()
    try:
        for rank in range(world):
            with (directory / f"rank{rank}.log").open("wb") as log:
                job.processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", JOB, mode, json.dumps(dict(arguments or {}))],
                        cwd=ROOT,
                        env=environment(directory, rank, world, port, plugin, env or {}),
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        yield job
    finally:
        for process in job.processes:  # of the section's group: they also end when it is killed
            process.kill()
        for process in job.processes:
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def environment(
    directory: Path, rank: int, world: int, port: int, plugin: Path | None, more: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a rank: nothing of an outer job, NCCL or Paceline."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PACELINE_", "NCCL_", "TORCH_NCCL_", "TORCHELASTIC_"))
    }
    chosen = {"NCCL_PROFILER_PLUGIN": str(plugin)} if plugin else {}
    return {
        **kept,
        **ONE_GPU,
        **chosen,
        "NCCL_HOSTID": f"r{rank}",
        "NCCL_DEBUG": "INFO",
        "NCCL_DEBUG_SUBSYS": "INIT,ENV",
        "NCCL_DEBUG_FILE": str(directory / "nccl.%p"),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "PACELINE_JOB": "gpu-check",
        "PACELINE_RUN_ID": "1",
        "PACELINE_RUNTIME_DIR": str(directory / "rings"),
        "GPU_CHECK_OUT": str(directory),
        "PYTHONUNBUFFERED": "1",
        **more,
    }


def free_port() -> int:
    """Return a TCP port that was free a moment ago."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def read_ring(path: Path) -> Ring:
    """Read all of a ring."""
    reader = RingReader(path)
    try:
        records: list[Record] = []
        lost = 0
        while True:
            batch = reader.poll()
            lost += batch.overwritten + batch.torn
            if not len(batch.rows) and not batch.torn:
                break
            records += batch.records
        entries, _ = reader.meta()
        info: dict[str, str] = {}
        for entry in entries:
            info.update(entry.get("info", {}))
        return Ring(
            producer=reader.identity.producer,
            rank=reader.identity.rank,
            records=records,
            info=info,
            comms=[entry for entry in entries if "comm" in entry],
            inflight=reader.inflight(),
            lost=lost,
        )
    finally:
        reader.close()
